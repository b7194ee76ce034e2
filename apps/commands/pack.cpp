// pinion pack: puts a model's packed weights into the cache on purpose, and says where they are and how large.
#include "apps/cli/machine.h"
#include "apps/commands.h"

namespace pinion {
namespace {

struct Options : RunOptions {
  bool check = false;
};

Error write_and_tell(const Model& model, bool is_checked, const std::string& what) {
  if (Error e = write_to_cache(model)) return e;
  print(model.cache.path.string() + ": " + what + bytes_text(static_cast<double>(model.cache.file_bytes())) +
        (!model.from_cache() ? "\n"
         : is_checked        ? ", was there, checked\n"
                             : ", was there\n"));
  return {};
}

int run(const Options& options) {
  if (Error e = check_model_folder(options.model)) return fail(e);
  Plan plan;
  if (Error e = make_plan(options, &plan)) return fail(e);
  Runtime runtime;
  if (Error e = use_plan(plan, &runtime)) return fail(e);
  ProgressBar bar(options.calibrate.empty() ? "packing" : "calibrating");
  LoadOptions load = load_options(options);
  load.team = runtime.team.get();
  load.check_cache = options.check;
  load.progress = [&bar](int64_t done_bytes, int64_t total_bytes) {
    bar.show(static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
  };
  if (Error e = read_calibration(options, &load)) return fail(e);
  if (load.cache_folder.empty()) return fail(error("no folder for the cache", "pack", "HOME or XDG_CACHE_HOME"));
  std::unique_ptr<Model> model;
  if (Error e = load_model(options.model, load, &model)) return fail(e);
  tell_of_model(*model);
  if (Error e = write_and_tell(*model, options.check, "")) return fail(e);
  bool has_layer = false;
  if (const Error e = check_mtp(options.model, load, &has_layer)) {
    if (has_layer) note("its MTP layer cannot draft: " + e.message());
    return kSuccess;
  }
  std::unique_ptr<Model> layer;
  if (Error e = load_mtp(options.model, load, *model, &layer)) return fail(e);
  if (Error e = write_and_tell(*layer, options.check, "for --speculate mtp, ")) return fail(e);
  return kSuccess;
}

}  // namespace

Run setup_pack(Command app) {
  auto options = std::make_shared<Options>();
  add_model_option(app, options.get()).required();
  add_weight_options(app, options.get());
  add_threads_option(app, options.get());
  app.add_flag("--check", options->check, "Compare what is there with its hashes, and pack damaged parts anew");
  return {[options] { return run(*options); }};
}

}  // namespace pinion
