#include "engine/session/embedding.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/forward/pass.h"
#include "engine/forward/rope.h"
#include "kernels/base/math.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxOutputs = 1 << 16;

// Names of modules, and the switches in files of versions before 5.
struct PoolingName {
  Pooling pooling;
  const char *name, *old_switch;
};
constexpr PoolingName kPoolingNames[] = {
    {Pooling::cls, "cls", "pooling_mode_cls_token"},
    {Pooling::last, "lasttoken", "pooling_mode_lasttoken"},
    {Pooling::max, "max", "pooling_mode_max_tokens"},
    {Pooling::mean, "mean", "pooling_mode_mean_tokens"},
    {Pooling::weighted_mean, "weightedmean", "pooling_mode_weightedmean_tokens"},
    {Pooling::none, "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
};

// An optional file, or the config.json of a module.
struct OptionalFile {
  std::string where;
  Json json = Json::object();
  JsonFields fields{json, where};

  explicit OptionalFile(const fs::path& file, bool is_required = false) : where(file) {
    if (is_required || path_exists(file)) fields.error = read_json_file(file, &json);
  }
};

// Fails for fields that change vectors in a way that is not computed, unless they have the value that changes nothing.
void expect_neutral(OptionalFile& file, std::initializer_list<std::pair<const char*, Json>> fields) {
  for (const auto& [name, neutral] : fields) {
    const Json* value = file.fields.find(name);
    if (!value || value->empty() || *value == neutral) continue;
    file.fields.fail(name, "not supported", neutral.dump(), brief(*value));
  }
}

// The last part of a Python name.
std::string class_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

Error read_pooling(const fs::path& folder, EmbeddingConfig* out) {
  OptionalFile file(folder / "config.json", true);
  std::vector<std::string> names = file.fields.texts("pooling_mode");
  for (const PoolingName& row : kPoolingNames) {
    if (file.fields.boolean(row.old_switch, false)) names.push_back(row.name);
  }
  if (names.size() > 1) file.fields.fail("pooling_mode", "not supported", "one mode", joined(names));
  out->pools_prompt = file.fields.boolean("include_prompt", true);
  if (file.fields.error) return file.fields.error;
  Error e = parse_pooling(names.empty() ? "mean" : names[0], &out->pooling);
  if (e) e.where = file.where + ": " + e.where;
  return e;
}

// Reads MODULE.weight [outputs, inputs] and, if there is one, MODULE.bias.
Error read_linear(const Checkpoint& checkpoint, const std::string& module, DenseLayer* out) {
  TensorView weight, bias;
  if (Error e = checkpoint.bind(module + ".weight", {out->outputs, out->inputs}, &weight)) return e;
  out->weight.resize(out->outputs * out->inputs);
  read_floats(weight, out->weight.data());
  if (!checkpoint.find(module + ".bias")) return {};
  if (Error e = checkpoint.bind(module + ".bias", {out->outputs}, &bias)) return e;
  out->bias.resize(out->outputs);
  read_floats(bias, out->bias.data());
  return {};
}

Error read_dense(const fs::path& folder, int64_t inputs, DenseLayer* out) {
  OptionalFile file(folder / "config.json", true);
  out->inputs = file.fields.integer("in_features", {}, inputs, inputs);
  out->outputs = file.fields.integer("out_features", {}, 1, kMaxOutputs);
  const std::string activation = class_of(file.fields.text("activation_function", "Tanh"));
  out->has_tanh = activation == "Tanh";
  if (!out->has_tanh && activation != "Identity") {
    file.fields.fail("activation_function", "not supported", "Tanh or Identity", activation);
  }
  expect_neutral(file, {{"use_residual", false},
                        {"module_input_name", "sentence_embedding"},
                        {"module_output_name", "sentence_embedding"}});
  if (file.fields.error) return file.fields.error;
  const fs::path weights = folder / kSingleFile;
  if (!path_exists(weights)) return error("missing (a pytorch_model.bin is not read)", weights);
  Checkpoint checkpoint;
  if (Error e = open_checkpoint(folder, &checkpoint)) return e;
  return read_linear(checkpoint, "linear", out);
}

// The logit of a token, or the difference of two, from rows of the head as the file has them. A packed model whose head
// is not its embedding has their difference.
Error read_logit_score(const fs::path& folder, const Model& model, DenseLayer* out) {
  const ModelConfig& c = model.config;
  OptionalFile file(folder / "config.json", true);
  const int64_t yes = file.fields.integer("true_token_id", {}, 0, c.vocab_size - 1);
  const int64_t no = file.fields.integer("false_token_id", -1, 0, c.vocab_size - 1);
  if (file.fields.error) return file.fields.error;
  const auto is_update = [&](const TensorView& t) { return t.name.starts_with(c.name("head") + ".lora_"); };
  if (c.logit_cap > 0 || c.head_bias || std::ranges::any_of(model.checkpoint.tensors, is_update)) {
    return error("not supported: a score from capped or biased logits, or an adapter of the head", file.where);
  }
  out->inputs = c.hidden_size, out->outputs = 1;
  out->weight.resize(c.hidden_size);
  const TensorView *packed = model.checkpoint.find(kPackedScore),
                   *in_file = model.checkpoint.find(c.name("head") + ".weight");
  const TensorView* head = packed ? packed : c.tied_head ? &model.embedding : in_file;
  const bool has_row = !packed || packed->shape == std::vector<int64_t>{1, c.hidden_size};
  if (!head || !head->data || !has_row || (!is_float(head->dtype) && !block_format(head->dtype))) {
    return error("no such tensor as floats", file.where, c.name("head") + ".weight");
  }
  std::vector<float> row(c.hidden_size);
  read_row(*head, packed ? 0 : yes, out->weight.data());
  if (packed) return {};
  if (no >= 0) read_row(*head, no, row.data());
  for (int64_t i = 0; i < c.hidden_size; ++i) out->weight[i] = (out->weight[i] - row[i]) * c.logit_scale;
  return {};
}

// Adds the layer of a matrix of the model's own file, if it has one.
Error add_layer(const Model& model, const std::string& module, EmbeddingConfig* out) {
  const TensorView* weight = model.checkpoint.find(module + ".weight");
  if (!weight) return {};
  if (weight->shape.size() != 2 || weight->shape[0] < 1 || weight->shape[0] > kMaxOutputs) {
    return error("wrong shape", model.checkpoint.where(weight->name), "1 to " + std::to_string(kMaxOutputs) + " rows");
  }
  DenseLayer layer;
  layer.inputs = out->dense.empty() ? model.config.hidden_size : out->dense.back().outputs;
  layer.outputs = weight->shape[0];
  if (Error e = read_linear(model.checkpoint, module, &layer)) return e;
  out->dense.push_back(std::move(layer));
  return {};
}

// The score head of a classifier of transformers has no bias, and reads the last token other than config.json's
// pad_token_id, even if the tokenizer ends all texts with that one.
Error read_score_head(const std::string& folder, const Model& model, EmbeddingConfig* out) {
  out->is_score = !model.config.has_head && model.checkpoint.find("score.weight") != nullptr;
  if (!out->is_score) return {};
  OptionalFile file(fs::path(folder) / "config.json", true);
  out->pooling = Pooling::last;
  if (!model.config.attends_both_ways) out->skipped_end = file.fields.integer("pad_token_id", -1);
  if (Error e = file.fields.error ? file.fields.error : add_layer(model, "score", out)) return e;
  out->dense.back().bias.clear();
  return {};
}

// The type of pooling; the dense layers of EmbeddingGemma or, for a reranker, the head's rows of "yes" and "no".
// llama.cpp normalises all vectors.
Error read_gguf_pooling(const std::string& file, const Model& model, EmbeddingConfig* out) {
  constexpr Pooling kTypes[] = {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last, Pooling::last};
  Json config;
  std::string text;
  if (Error e = read_model_text(file, "config.json", kMaxJsonBytes, &text)) return e;
  if (Error e = parse_json(text, file, &config)) return e;
  JsonFields fields{config, file};
  const int64_t type = fields.integer("pooling_type", 0, 0, 4);
  if (fields.error || type == 0) return fields.error;
  out->pooling = kTypes[type];
  out->is_score = type == 4;
  out->normalizes = !out->is_score;
  for (const char* module : {"dense_2", "dense_3", "cls.output"}) {
    if (Error e = add_layer(model, module, out)) return e;
  }
  if (!out->is_score) return {};
  const bool has_two = out->dense.size() == 1 && out->dense[0].outputs == 2;
  if (!has_two) return error("not supported", file, "cls.output [2, hidden]");
  DenseLayer& layer = out->dense[0];
  for (int64_t i = 0; i < layer.inputs; ++i) layer.weight[i] -= layer.weight[layer.inputs + i];
  layer.outputs = 1;
  return {};
}

Error read_modules(const fs::path& folder, const Model& model, EmbeddingConfig* out) {
  OptionalFile file(folder / "modules.json");
  if (file.fields.error) return file.fields.error;
  constexpr std::string_view kOrder[] = {"Transformer", "Pooling", "Dense", "Normalize"};
  int64_t last = -1;
  for (const Json& item : file.json) {
    JsonFields module{item, file.where};
    const std::string type = module.text("type");
    const std::string kind = type.starts_with("sentence_transformers.") ? class_of(type) : type;
    const int64_t next = std::ranges::find(kOrder, kind == "LogitScore" ? "Pooling" : kind) - kOrder;
    const bool follows = last < 0 ? next == 0 : next > last || (next == last && kind == "Dense");
    if (!follows) return error("modules in an order that is not supported", file.where, {}, kind);
    last = kind == "LogitScore" ? 3 : next;  // a score is the last module
    const fs::path path = module.text("path", ""), part = folder / (path.has_filename() ? path : path.parent_path());
    if (module.error) return module.error;
    const bool leaves = path.is_absolute() || std::ranges::count(path, "..") > 0;
    if (kind != "Transformer" && kind != "Normalize" && (path.empty() || leaves)) {
      return error("not a folder of the model", file.where + ": path", "1_" + kind, brief(item));
    }
    const int64_t inputs = out->dense.empty() ? model.config.hidden_size : out->dense.back().outputs;
    Error e;
    if (kind == "Pooling") {
      e = read_pooling(part, out);
    } else if (kind == "Dense") {
      e = read_dense(part, inputs, &out->dense.emplace_back());
    } else if (kind == "LogitScore") {
      out->pooling = Pooling::last;
      out->is_score = true;
      e = read_logit_score(part, model, &out->dense.emplace_back());
    } else if (kind == "Normalize") {
      out->normalizes = true;
    } else if (kind != "Transformer") {
      e = error("not supported", file.where, "Transformer, Pooling, Dense, Normalize or LogitScore", kind);
    }
    if (e) return e;
  }
  return {};
}

Error read_texts(const fs::path& folder, EmbeddingConfig* out) {
  OptionalFile prompts(folder / "config_sentence_transformers.json");
  const JsonFields by_name = prompts.fields.fields("prompts");
  for (const auto& [name, text] : by_name.object.items()) {
    if (text.is_string()) out->prompts[name] = text.get<std::string>();
  }
  out->default_prompt = prompts.fields.text("default_prompt_name", "");
  if (!out->default_prompt.empty() && !out->prompts.contains(out->default_prompt)) {
    prompts.fields.fail("default_prompt_name", "no such prompt", {}, out->default_prompt);
  }
  if (out->is_score) {
    OptionalFile config(folder / "config.json");
    const std::string old = config.fields.text("sbert_ce_default_activation_function", "");
    JsonFields nested = config.fields.fields("sentence_transformers");
    const std::string activation = class_of(prompts.fields.text("activation_fn", nested.text("activation_fn", old)));
    if (nested.error) return nested.error;
    out->applies_sigmoid = activation.empty() || activation == "Sigmoid";
    if (!out->applies_sigmoid && activation != "Identity") {
      return error("not supported", folder / "config.json: activation_fn", "Sigmoid or Identity", activation);
    }
  }
  expect_neutral(prompts, {{"truncate_dim", nullptr}});
  if (prompts.fields.error) return prompts.fields.error;
  OptionalFile length(folder / "sentence_bert_config.json"), tokenizer(folder / "tokenizer_config.json");
  expect_neutral(length, {{"do_lower_case", false}, {"config_args", nullptr}, {"config_kwargs", nullptr}});
  const double by_tokenizer = tokenizer.fields.number("model_max_length", 1e30, 1);
  const auto limit = static_cast<int64_t>(std::min(by_tokenizer, static_cast<double>(out->max_tokens)));
  out->max_tokens = std::min(out->max_tokens, length.fields.integer("max_seq_length", limit, 1));
  return length.fields.error ? length.fields.error : tokenizer.fields.error;
}

}  // namespace

Error parse_pooling(const std::string& name, Pooling* out) {
  const auto found = std::ranges::find(kPoolingNames, name == "last" ? "lasttoken" : name, &PoolingName::name);
  if (found == std::end(kPoolingNames) || found->pooling == Pooling::none) {
    return error("not supported", "pooling_mode", "cls, lasttoken, max, mean or weightedmean", name);
  }
  *out = found->pooling;
  return {};
}

Error read_embedding_config(const std::string& folder, const Model& model, Pooling pooling, EmbeddingConfig* out) {
  *out = {};
  out->max_tokens = context_length(model.config);
  if (Error e = read_modules(folder, model, out)) return e;
  if (out->pooling == Pooling::none) {
    Error e =
        model.checkpoint.is_gguf_file ? read_gguf_pooling(folder, model, out) : read_score_head(folder, model, out);
    if (e) return e;
  }
  if (pooling != Pooling::none) {
    out->normalizes |= out->pooling == Pooling::none;
    out->pooling = pooling;
  }
  return out->pooling == Pooling::none ? Error{} : read_texts(folder, out);
}

void PooledText::add(int64_t first, std::span<const float> rows, int64_t hidden_size) {
  const int64_t skipped = config.pools_prompt ? 0 : prompt_tokens, count = std::ssize(rows) / hidden_size;
  if (first == 0) sums.assign(hidden_size, 0.0), weight = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = first + i;
    const std::span<const float> row = rows.subspan(i * hidden_size, hidden_size);
    if (config.pooling == Pooling::last || (config.pooling == Pooling::cls && position == skipped)) {
      sums.assign(row.begin(), row.end());
      weight = 1;
    }
    if (config.pooling == Pooling::last || config.pooling == Pooling::cls || position < skipped) continue;
    const bool is_max = config.pooling == Pooling::max;
    const double factor = config.pooling == Pooling::weighted_mean ? static_cast<double>(position + 1) : 1.0;
    for (int64_t k = 0; k < hidden_size; ++k) {
      const bool is_new = weight == 0 || row[k] > sums[k] || std::isnan(row[k]);
      sums[k] = is_max ? is_new ? row[k] : sums[k] : sums[k] + factor * row[k];
    }
    weight = is_max ? 1 : weight + factor;
  }
}

Error PooledText::finish(int64_t dimensions, std::vector<float>* out) const {
  if (weight == 0) return error("no token to pool", "text");
  std::vector<float> vector(sums.size());
  std::ranges::transform(sums, vector.begin(), [&](double sum) { return static_cast<float>(sum / weight); });
  if (!std::ranges::all_of(vector, [](float x) { return std::isfinite(x); })) {
    return error("NaN or infinity; the weights may be damaged", "hidden states");
  }
  for (const DenseLayer& layer : config.dense) {
    std::vector<float> next(layer.outputs);
    for (int64_t i = 0; i < layer.outputs; ++i) {
      const float sum = dot(layer.weight.data() + i * layer.inputs, vector.data(), layer.inputs) +
                        (layer.bias.empty() ? 0.0f : layer.bias[i]);
      next[i] = layer.has_tanh ? static_cast<float>(2.0 / (1.0 + portable_exp(-2.0 * sum)) - 1.0) : sum;
    }
    vector = std::move(next);
  }
  if (dimensions > 0) vector.resize(std::min<size_t>(vector.size(), dimensions));
  double length = 0;
  for (const float x : vector) length += double{x} * x;
  if (!std::isfinite(length)) return error("NaN or infinity; the dense layers may be damaged", "vector");
  const double scale = config.normalizes && !config.is_score && length > 0 ? 1.0 / std::sqrt(length) : 1.0;
  for (float& x : vector) x = static_cast<float>(x * scale);
  *out = std::move(vector);
  return {};
}

}  // namespace pinion
