#include "engine/runtime/follow.h"

#include <cstdlib>

#include "engine/measure/statistics.h"

namespace pinion {
namespace {

Error open_runner(const Follower& follower, const RunnerSize& size, FollowerRunner* out) {
  const Model& model = *follower.model;
  if (Error e = make_runner(model, *follower.team, follower.prefill_team, follower.kernels, out)) return e;
  const KvShape shape = kv_shape_of(model.config, size.kv, model.shares());
  const int64_t bytes = size.blocks * shape.block_bytes();
  const std::string what = std::to_string(size.blocks) + " blocks of the cache";
  if (Error e = allocate_scratch(out, size.tokens, size.positions, bytes, 0, what, "")) return e;
  return allocate_kv_pool(shape, size.blocks, &out->pool);
}

void reset_profile(FollowerRunner& runner) {
  runner.profile_since_report = {};
  runner.profile_since_report.workers.resize(std::max(runner.team->size(), runner.prefill_team->size()));
}

void read_segments(MessageReader& message, FollowerRunner& runner) {
  const auto count = message.read<size_t>();
  runner.segments.clear();
  runner.caches.resize(count), runner.tokens.resize(count), runner.ropes.resize(count);
  for (size_t i = 0; i < count; ++i) {
    runner.caches[i].pool = &runner.pool;
    Segment segment{&runner.caches[i], &runner.no_state, {}, {}, 0, 0};
    message.read(runner.caches[i].blocks, runner.tokens[i], segment.position, segment.logit_rows, segment.drafts,
                 segment.candidates);
    segment.tokens = runner.tokens[i];
    read_ropes(message, &runner.last_ropes);
    runner.ropes[i] = runner.last_ropes;
    segment.ropes = runner.ropes[i];
    runner.segments.push_back(segment);
  }
}

}  // namespace

void execute(Follower& follower, BoardCommand command, MessageReader message) {
  const auto id = message.read<int64_t>();
  std::unique_ptr<FollowerRunner>& runner = follower.runners[id];
  if (command == BoardCommand::open) {
    const auto size = message.read<RunnerSize>();
    runner = std::make_unique<FollowerRunner>();
    const Error e = open_runner(follower, size, runner.get());
    if (!e) reset_profile(*runner);
    [[maybe_unused]] const Error of_any = agree(*follower.model->exchange, e);  // board 0 reports it
  } else if (command == BoardCommand::pass) {
    runner->profile = message.read<bool>() ? &runner->profile_since_report : nullptr;
    read_segments(message, *runner);
    int64_t rows = 0;
    for (const Segment& segment : runner->segments) rows += segment.logit_rows;
    const size_t floats = rows * runner->model->config.vocab_size;
    if (runner->logits.size() < floats) runner->logits.resize(floats);
    run_pass(*runner, runner->segments, runner->logits.data());
  } else if (command == BoardCommand::profile) {
    profiles_of_all(*follower.model->exchange, runner->profile_since_report);
    reset_profile(*runner);
  } else if (command == BoardCommand::copy) {
    const auto from = message.read<int32_t>(), to = message.read<int32_t>();
    copy_block(runner->pool, from, to);
  } else if (command == BoardCommand::close) {
    follower.runners.erase(id);
  }
}

double time_gathers(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds) {
  const Shares& shares = exchange.shares();
  int64_t max_bytes = 0;
  for (const int64_t size : sizes) max_bytes = std::max(max_bytes, std::abs(size));
  std::vector<std::byte> bytes(max_bytes);
  std::vector<int64_t> begins(shares.ranks + 1);
  std::vector<double> seconds;
  for (int64_t round = 0; round < rounds; ++round) {
    values_of_all(exchange, 0);  // acts as a barrier, so that no board begins early
    const double start = now_seconds();
    for (const int64_t size : sizes) {
      for (int32_t board = 0; board <= shares.ranks; ++board) begins[board] = shares.begin(std::abs(size), board);
      size > 0 ? exchange.gather(bytes.data(), begins) : exchange.gather_on_first(bytes.data(), begins);
    }
    seconds.push_back(now_seconds() - start);
  }
  return median_of(std::move(seconds));
}

void run_follower(RuntimeOptions options) {
  Exchange& exchange = *options.exchange;
  std::unique_ptr<Runtime> runtime;
  Follower follower;
  for (std::vector<std::byte> message;;) {
    exchange.receive(&message);
    MessageReader reader(message);
    const auto command = reader.read<BoardCommand>();
    if (command == BoardCommand::end) return;
    if (command == BoardCommand::time_gathers) {
      const auto rounds = reader.read<int64_t>();
      const auto sizes = reader.read<std::vector<int64_t>>();
      time_gathers(exchange, sizes, rounds);
      continue;
    }
    if (command != BoardCommand::load) {
      execute(follower, command, reader);
      continue;
    }
    read_load_options(reader, &options.load);
    follower = {};
    runtime = std::make_unique<Runtime>();
    [[maybe_unused]] const Error of_any = open_runtime(options, runtime.get());  // board 0 reports it
    follower = {runtime->model.get(), runtime->team.get(), runtime->prefill_team.get(), runtime->kernels};
  }
}

double time_gathers_on_all(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds) {
  MessageWriter message;
  message.begin(BoardCommand::time_gathers, rounds, sizes);
  exchange.broadcast(message.bytes());
  return time_gathers(exchange, sizes, rounds);
}

void stop_followers(Exchange& exchange) {
  MessageWriter message;
  message.begin(BoardCommand::end);
  exchange.broadcast(message.bytes());
}

}  // namespace pinion
