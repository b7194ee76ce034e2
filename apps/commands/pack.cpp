// pinion pack: packs a model's weights into the cache or into a folder that travels, or checks packed ones.
#include <fnmatch.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "apps/cli/output_file.h"
#include "apps/commands.h"
#include "engine/runtime/load.h"
#include "engine/session/embedding.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEmbeddingNames[] = {"none", "w8"};

struct PackFlags : RunOptions {
  bool check = false;
  bool int8_embedding = false;
  std::string out;  // folder of the packed model; empty: the cache
};

std::atomic<bool> interrupted{false};

// Removed at the end of its life, unless it was renamed.
struct TemporaryFolder {
  std::string path;

  ~TemporaryFolder() {
    std::error_code code;
    if (!path.empty()) fs::remove_all(path, code);
  }
};

// Copies the files of a model's folder that a packed model needs beside its weights, and those about its licence.
// Writes those that a GGUF file stands for.
Error copy_other_files(const std::string& from, const std::string& to) {
  constexpr const char* kAlso[] = {"LICEN[CS]E*", "NOTICE*", "README*", "USE_POLICY*", "additional_chat_templates",
                                   "[0-9]_*"};
  std::error_code code;
  const bool is_file = is_gguf(from);
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json"}) {
    std::string text;
    if (!is_file || !has_model_text(from, name)) continue;
    if (Error e = read_model_text(from, name, kMaxJsonBytes, &text)) return e;
    if (Error e = write_output_file(to + "/" + name, text)) return e;
  }
  if (is_file) return {};
  for (fs::directory_iterator entry(from, code), end; !code && entry != end; entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    const bool is_weights = name == kSingleFile || name == kIndexFile;
    const auto fits = [&](const char* pattern) { return fnmatch(pattern, name.c_str(), FNM_CASEFOLD) == 0; };
    if (is_weights || (!is_model_file(name) && std::ranges::none_of(kAlso, fits))) continue;
    fs::copy(entry->path(), fs::path(to) / name, fs::copy_options::recursive, code);
    if (code) return error("cannot copy to " + to, entry->path().string(), {}, code.message());
  }
  return code ? error("cannot read", from, {}, code.message()) : Error{};
}

// Makes a temporary folder beside a packed model's, which must be new or empty.
Error make_temporary_folder(const std::string& out, fs::path* to, TemporaryFolder* folder) {
  std::error_code code;
  const bool is_empty = fs::is_directory(out, code) && fs::is_empty(out, code);
  if (fs::exists(out, code) && !is_empty) return error("not an empty folder", out);
  *to = (fs::weakly_canonical(out, code) / "").parent_path();
  fs::create_directories(to->parent_path(), code);
  folder->path = to->string() + ".XXXXXX";
  if (mkdtemp(folder->path.data())) return {};
  folder->path.clear();
  return error("cannot make the folder", to->string(), {}, std::strerror(errno));
}

void handle_signals(void (*handler)(int)) {
  struct sigaction action = {}, before = {};
  action.sa_handler = handler;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

// Nothing has been written yet, and the calibration cannot be resumed.
void end_before_writing(int) {
  constexpr char kText[] = "\npinion: interrupted; nothing is written, the next start begins again\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(kFailure);
}

// Rounds the embeddings of tokens to int8. rows: their memory.
Error round_embeddings(Model* model, std::vector<std::vector<std::byte>>* rows) {
  const BlockFormat& format = *ggml_type(kQ8_0);
  for (auto& [name, tensor] : model->unpacked) {
    const bool is_embedding = tensor.data == model->embedding.data || tensor.data == model->layer_inputs.embedding.data;
    if (!is_embedding || block_format(tensor.dtype)) continue;
    const int64_t n = tensor.shape[0], k = tensor.shape[1], row_bytes = k / format.elements * format.bytes;
    if (k % format.elements != 0) {
      return error("--embedding w8: rows must be whole blocks", name, "a multiple of 32 columns", k);
    }
    std::vector<float> row(k);
    std::vector<std::byte>& to = rows->emplace_back(n * row_bytes);
    for (int64_t i = 0; i < n; ++i) {
      read_row(tensor, i, row.data());
      write_q8_0(row.data(), k / format.elements, to.data() + i * row_bytes);
    }
    tensor = {name, format.dtype, {n, k}, to.data(), n * row_bytes};
  }
  return {};
}

// Writes the folder under a temporary name, then renames it.
Error write_folder(const PackFlags& options, const LoadOptions& load, const Model& model, const Model* mtp) {
  std::error_code code;
  fs::path to;
  TemporaryFolder folder;
  if (Error e = make_temporary_folder(options.out, &to, &folder)) return e;
  handle_signals([](int) { interrupted = true; });
  ProgressBar bar("writing");
  const auto progress = [&](int64_t done, int64_t total) {
    bar.show(done, total);
    return interrupted ? error("interrupted", to.string()) : Error{};
  };
  const std::string source = repository_name(options.model), file = folder.path + "/" + kSingleFile;
  PackRecord record = {{"made_by", "pinion " PINION_VERSION},
                       {"source", source.empty() ? fs::canonical(options.model, code).filename().string() : source},
                       {"quant", std::string(quant_name(options))}};
  if (is_gguf(options.model)) record["source_format"] = kGgufMagic;
  if (Error e = copy_other_files(options.model, folder.path)) return e;
  if (Error e = write_packed_model(file, record, load, model, mtp, progress)) return e;
  if (Error e = read_pack_record(folder.path, &record)) return e;
  if (Error e = write_output_file(folder.path + "/pack.json", pack_json(record).dump(2) + "\n")) return e;
  const mode_t mask = umask(0);  // as made, only the owner may read them
  umask(mask);
  fs::permissions(folder.path, fs::perms(0777 & ~mask), code);
  fs::permissions(file, fs::perms(0666 & ~mask), code);
  fs::last_write_time(file, fs::file_time_type::clock::now(), code);
  if (interrupted) return error("interrupted", to.string());
  fs::rename(folder.path, to, code);
  if (code) return error("cannot rename " + folder.path, to.string(), {}, code.message());
  folder.path.clear();
  return {};
}

Error write_and_report(const Model& model, bool is_checked, const std::string& purpose) {
  if (Error e = write_to_cache(model)) return e;
  print(model.cache.path.string() + ": " + purpose + bytes_text(static_cast<double>(model.cache.file_bytes())) +
        (!model.from_cache() ? "\n"
         : is_checked        ? ", was there, checked\n"
                             : ", was there\n"));
  return {};
}

int run_pack(const PackFlags& options) {
  if (Error e = check_model_folder(options.model)) return fail(e);
  if (options.int8_embedding && options.out.empty()) return fail(error("needs --out", "--embedding"));
  if (!options.out.empty()) {  // tried before the long work
    fs::path to;
    TemporaryFolder folder;
    if (Error e = make_temporary_folder(options.out, &to, &folder)) return fail(e);
  }
  Plan plan;
  if (Error e = make_plan(options, &plan)) return fail(e);
  Runtime runtime;
  if (Error e = use_plan(plan, &runtime)) return fail(e);
  ProgressBar bar(calibration_source(options) == kNoCalibration ? "packing" : "calibrating");
  LoadOptions load = load_options(options);
  load.team = runtime.team.get();
  load.check_cache = options.check || !options.out.empty();  // damaged weights must not get a new seal
  load.progress = [&bar](int64_t done, int64_t total) { bar.show(done, total); };
  if (Error e = read_calibration(options, nullptr, &load)) return fail(e);
  const bool is_cached = options.out.empty();
  const bool has_place = !is_cached || !load.cache_folder.empty();
  if (!has_place) return fail(error("no folder for the cache", "pack", "HOME or XDG_CACHE_HOME"));
  std::unique_ptr<Model> model;
  handle_signals(end_before_writing);
  if (Error e = load_model(options.model, load, &model)) return fail(e);
  for (const std::string& text : model_notes(*model)) note(text);
  if (Error e = is_cached ? write_and_report(*model, options.check, "") : Error{}) return fail(e);
  std::unique_ptr<Model> layer;
  bool has_layer = false;
  const Error no_layer = check_mtp(options.model, load, &has_layer);
  if (no_layer && has_layer) note("the model's MTP layer cannot draft: " + no_layer.message());
  if (Error e = no_layer ? Error{} : load_mtp(options.model, load, *model, &layer)) return fail(e);
  if (is_cached && layer) {
    if (Error e = write_and_report(*layer, options.check, "for --speculate mtp, ")) return fail(e);
  }
  if (is_cached) return kSuccess;
  EmbeddingConfig scores;  // the packed head has no rows as floats for them
  if (Error e = read_embedding_config(options.model, *model, Pooling::none, &scores)) {
    note("the packed model will make no vectors or scores: " + e.message());
  } else if (scores.is_score && model->config.has_head && !model->config.tied_head) {
    const auto row = std::as_bytes(std::span(scores.dense.back().weight));
    model->unpacked[kPackedScore] = {
        kPackedScore, DType::f32, {1, scores.dense.back().inputs}, row.data(), std::ssize(row)};
  }
  std::vector<std::vector<std::byte>> rows;
  if (Error e = options.int8_embedding ? round_embeddings(model.get(), &rows) : Error{}) return fail(e);
  if (Error e = write_folder(options, load, *model, layer.get())) return fail(e);
  print(options.out + ": open it with --model, on any machine\n");
  return kSuccess;
}

}  // namespace

Run setup_pack(Command app) {
  auto options = std::make_shared<PackFlags>();
  add_model_option(app, options.get()).required();
  add_weight_options(app, options.get());
  add_threads_option(app, options.get());
  app.add_flag("--check", options->check);
  app.add_option("--out DIR", options->out);
  app.add_choice("--embedding FORMAT", kEmbeddingNames, [options](size_t i) { options->int8_embedding = i > 0; });
  return {[options] { return run_pack(*options); }};
}

}  // namespace pinion
