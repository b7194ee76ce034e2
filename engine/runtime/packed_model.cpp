#include "engine/runtime/packed_model.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include "engine/runtime/calibration.h"
#include "engine/team/team.h"
#include "kernels/base/text.h"
#include "kernels/layout.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/pack/pack_cache.h"

namespace pinion {
namespace {

// The options that change packed matrices, besides the mode and a calibration.
std::string options_text(const LoadOptions& options) {
  std::vector<std::string> changes = options.keep;
  if (options.head) changes.push_back(std::string("head ") + traits_of(*options.head).name);
  if (!options.rotate) changes.emplace_back("not rotated");
  for (const std::filesystem::path path : options.lora) {
    changes.push_back("adapter " + (path / "").parent_path().filename().string());
  }
  return joined(changes);
}

TensorView packed_tensor(const char* name, const Model& model) {
  return {name, DType::u8, {model.weight_bytes}, model.packed().data(), model.weight_bytes};
}

}  // namespace

Error check_packed_options(const std::string& folder, PackRecord record, const LoadOptions& options) {
  constexpr const char* kAdvice = "packed otherwise; pack its source for this";
  const std::string quant(kQuantNames[static_cast<size_t>(options.quant)]), given = options_text(options);
  const std::string calibration = calibration_name(options.calibration);
  if (!options.lora.empty()) return error(kAdvice, folder + ": --lora", "none", options.lora[0]);
  if (options.exchange) return error("a packed model is for one board; several boards need its source", folder);
  if (quant != record["quant"]) return error(kAdvice, folder + ": --quant", record["quant"], quant);
  if (!given.empty() && !options.mtp && given != record["options"]) {
    return error(kAdvice, folder + ": --keep, --head, --no-rotate",
                 record["options"].empty() ? "none" : record["options"], given);
  }
  if (calibration.empty() || calibration == record["calibration"]) return {};
  return error(kAdvice, folder + ": --calibrate", record["calibration"], calibration);
}

Error find_packed(const std::string& folder, bool is_mtp, Model* model) {
  Checkpoint& checkpoint = model->checkpoint;
  const char* name = is_mtp ? kPackedMtp : kPacked;
  const TensorView *first = checkpoint.find(kPacked), *packed = checkpoint.find(name), *seal = checkpoint.find(kSeal);
  const bool fits = first && packed && seal && packed->bytes == model->weight_bytes &&
                    checkpoint.pack_record[name] == model->layout &&
                    reinterpret_cast<uintptr_t>(packed->data) % kAlignmentBytes == 0;
  if (!fits) return error("config.json does not fit the packed matrices; copy the folder or pack again", folder);
  const auto* file = reinterpret_cast<const char*>(checkpoint.files[0].contents().data());
  model->mapped = packed->contents();
  model->cache = {
      folder + "/" + kSingleFile, {file, reinterpret_cast<const char*>(first->data)}, seal->data - first->data};
  return {};
}

Error open_packed(const LoadOptions& options, Model* model) {
  if (model->mapped.empty()) return {};
  if (Error e = open_pack_cache(model->cache, &model->cached)) return e;
  if (!options.check_cache) return {};
  const std::vector<int64_t> damaged = damaged_segments(workers_of(options.team), model->cache, model->cached);
  if (options.team) Team::unpin_caller();
  if (damaged.empty()) return {};
  return error("damaged; copy the folder or pack again", model->cache.path.string(), {},
               std::to_string(damaged.size()) + " MiB");
}

Error write_packed_model(const std::string& path, PackRecord record, const LoadOptions& options, const Model& model,
                         const Model* mtp, const WriteProgress& progress) {
  if (model.checkpoint.is_packed()) record = model.checkpoint.pack_record;
  record.insert({{"options", options_text(options)}, {"calibration", model.calibration}, {kPacked, model.layout}});
  std::map<std::string, TensorView> others = model.unpacked;
  std::vector<TensorView> tensors = {packed_tensor(kPacked, model)};
  if (mtp) {
    record[kPackedMtp] = mtp->layout;
    others.insert(mtp->unpacked.begin(), mtp->unpacked.end());
    tensors.push_back(packed_tensor(kPackedMtp, *mtp));
  }
  for (const auto& [name, tensor] : others) tensors.push_back(tensor);
  return write_packed_model(path, record, std::move(tensors), progress);
}

}  // namespace pinion
