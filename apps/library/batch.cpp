// Many texts at once for C, through the scheduler.
#include <algorithm>
#include <utility>

#include "apps/library/arguments.h"
#include "apps/library/generate.h"
#include "apps/model/open.h"
#include "engine/session/scheduler.h"

namespace pinion {
namespace {

struct Batch {
  std::vector<TextRun> runs;
  std::vector<pinion_result*> results;  // null: not ended yet

  ~Batch() {
    for (pinion_result* result : results) pinion_result_free(result);
  }
};

Error begin_all(const OpenModel& model, std::span<const pinion_request> requests, Batch* batch) {
  batch->runs.resize(requests.size());
  batch->results.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string where = "requests[" + std::to_string(i) + "]";
    if (!requests[i].prompt && requests[i].count > 0) return error("NULL", where + ".prompt");
    const std::span prompt(requests[i].prompt, requests[i].count);
    if (Error e = begin_text(model, prompt, requests[i].options, &batch->runs[i])) return error(e.message(), where);
  }
  return {};
}

SchedulerOptions options_for(const OpenModel& model, std::span<const pinion_request> requests, const Batch& batch,
                             int64_t parallel) {
  std::vector<int64_t> needs;
  for (size_t i = 0; i < requests.size(); ++i) {
    needs.push_back(static_cast<int64_t>(requests[i].count) + batch.runs[i].how.max_tokens);
  }
  return batch_options(model.runtime, std::move(needs), parallel);
}

void end_text(Batch& batch, size_t index, const Error& e, const GenerateResult& result) {
  TextRun& run = batch.runs[index];
  if (!e) run.finish();
  batch.results[index] = e ? make_failed_result(PINION_ERROR_RUN, e) : make_result(run, result);
}

Error submit_all(std::span<const pinion_request> requests, Scheduler& scheduler, Batch& batch) {
  for (size_t i = 0; i < requests.size(); ++i) {
    TextRun& run = batch.runs[i];
    TextRequest request = {
        .prompt = {requests[i].prompt, requests[i].prompt + requests[i].count},
        .options = run.how,
        .on_token = [&run](int32_t id, const GenerateResult&) { return run.put(id); },
        .on_end = [&batch, i](const Error& e, const GenerateResult& result) { end_text(batch, i, e, result); }};
    int64_t id = 0;
    if (Error e = submit(scheduler, std::move(request), &id)) {
      return error(e.message(), "requests[" + std::to_string(i) + "]");
    }
  }
  return {};
}

pinion_status generate_batch(OpenModel& model, std::span<const pinion_request> requests, int64_t parallel,
                             pinion_result** results) {
  Batch batch;
  if (Error e = begin_all(model, requests, &batch)) return failed(PINION_ERROR_ARGUMENT, e);
  const Turn turn(model.turns);
  if (!turn.is_taken()) return busy();
  std::unique_ptr<Scheduler> scheduler;
  const SchedulerOptions options = options_for(model, requests, batch, parallel);
  if (Error e = open_scheduler(*model.runtime.model, *model.runtime.team, options, &scheduler)) {
    return status_of(e, PINION_ERROR_ARGUMENT);
  }
  if (Error e = submit_all(requests, *scheduler, batch)) return failed(PINION_ERROR_ARGUMENT, e);
  while (step(*scheduler)) {
  }
  for (size_t i = 0; i < requests.size(); ++i) results[i] = std::exchange(batch.results[i], nullptr);
  return PINION_OK;
}

}  // namespace
}  // namespace pinion

using namespace pinion;

pinion_status pinion_generate_batch(pinion_model* model, const pinion_request* requests, size_t count, int64_t parallel,
                                    pinion_result** results) {
  return guarded([&] {
    if (count > 0 && (!requests || !results)) return missing("requests or results");
    std::fill_n(results, count, nullptr);
    if (!model) return missing("model");
    constexpr int64_t kMostParallel = 1024;
    if (parallel < 0 || parallel > kMostParallel) {
      return failed(PINION_ERROR_ARGUMENT, error("out of range", "parallel", "0 to " + std::to_string(kMostParallel),
                                                 std::to_string(parallel)));
    }
    if (count == 0) return PINION_OK;
    return generate_batch(*model->shared, {requests, count}, parallel, results);
  });
}
