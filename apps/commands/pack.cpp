// pinion pack: packs a model's weights into the cache, or checks cached ones, and prints the file and its size.
#include "apps/commands.h"

namespace pinion {
namespace {

struct PackFlags : RunOptions {
  bool check = false;
};

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
  Plan plan;
  if (Error e = make_plan(options, &plan)) return fail(e);
  Runtime runtime;
  if (Error e = use_plan(plan, &runtime)) return fail(e);
  ProgressBar bar(calibration_source(options) == kNoCalibration ? "packing" : "calibrating");
  LoadOptions load = load_options(options);
  load.team = runtime.team.get();
  load.check_cache = options.check;
  load.progress = [&bar](int64_t done_bytes, int64_t total_bytes) {
    bar.show(static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
  };
  if (Error e = read_calibration(options, nullptr, &load)) return fail(e);
  if (load.cache_folder.empty()) return fail(error("no folder for the cache", "pack", "HOME or XDG_CACHE_HOME"));
  std::unique_ptr<Model> model;
  if (Error e = load_model(options.model, load, &model)) return fail(e);
  note_all(model_notes(*model));
  if (Error e = write_and_report(*model, options.check, "")) return fail(e);
  bool has_layer = false;
  if (const Error e = check_mtp(options.model, load, &has_layer)) {
    if (has_layer) note("the model's MTP layer cannot draft: " + e.message());
    return kSuccess;
  }
  std::unique_ptr<Model> layer;
  if (Error e = load_mtp(options.model, load, *model, &layer)) return fail(e);
  if (Error e = write_and_report(*layer, options.check, "for --speculate mtp, ")) return fail(e);
  return kSuccess;
}

}  // namespace

Run setup_pack(Command app) {
  auto options = std::make_shared<PackFlags>();
  add_model_option(app, options.get()).required();
  add_weight_options(app, options.get());
  add_threads_option(app, options.get());
  app.add_flag("--check", options->check, "Compare cached weights with their hashes, and repack damaged segments");
  return {[options] { return run_pack(*options); }};
}

}  // namespace pinion
