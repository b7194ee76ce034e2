// Failed requests: a status before the first token, later the last event of the stream; other requests continue.
#include "apps/serve/inference_service.h"
#include "engine/runtime/runtime.h"
#include "tests/apps/overflowing.h"
#include "tests/apps/server.h"

namespace pinion {
namespace {

const json kHello = {{{"role", "user"}, {"content", "Hello"}}};

TEST(ServeFailures, EarlyFailureHasStatus) {
  const Overflowing model(kDemo);
  Server server(model.path);
  for (const bool streams : {false, true}) {
    const json completion = {{"prompt", "Once"}, {"stream", streams}};
    const json chat = {{"messages", kHello}, {"max_tokens", 9}, {"stream", streams}};
    for (const auto& [path, body] : {std::pair("/v1/completions", completion), {"/v1/chat/completions", chat}}) {
      const json failure = server.post(path, body, 500)["error"];
      EXPECT_EQ(failure["type"], "server_error");
      EXPECT_NE(failure["message"].get<std::string>().find("NaN or infinity"), std::string::npos) << failure;
    }
    const json messages = server.post("/v1/messages", chat, 500);
    EXPECT_EQ(messages["type"], "error");
    EXPECT_EQ(messages["error"]["type"], "api_error");
    EXPECT_TRUE(server.post("/api/chat", chat, 500)["error"].is_string());
  }
  EXPECT_NE(server.errors().find("NaN or infinity"), std::string::npos);
}

struct Stream {
  std::string path, type, failure;  // how its last event begins
};

TEST(ServeFailures, LateFailureIsLastEvent) {
  const Stream streams[] = {
      {"/v1/completions", "text/event-stream", "data: {\"error\":{\"message\":"},
      {"/v1/chat/completions", "text/event-stream", "data: {\"error\":{\"message\":"},
      {"/v1/messages", "text/event-stream", "event: error\ndata: {\"type\":\"error\","},
      {"/api/chat", "application/x-ndjson", "{\"error\":"},
      {"/v1/responses", "text/event-stream", "event: response.failed\ndata: {\"type\":\"response.failed\","},
  };
  for (const Stream& stream : streams) {
    Server server(kDemo);
    const json body = {{"prompt", "Once"},
                       {"input", "Once"},
                       {"messages", kHello},
                       {"max_tokens", 7000},
                       {"ignore_eos", true},
                       {"stream", true},
                       {"n", 8},
                       {"options", {{"num_predict", -1}, {"ignore_eos", true}}}};
    std::string text;
    httplib::Request request;
    request.method = "POST";
    request.path = stream.path;
    request.body = body.dump();
    request.content_receiver = [&](const char* data, size_t bytes, uint64_t, uint64_t) {
      server.signal(SIGTERM);  // the second one stops the server; two pending ones count as one
      text.append(data, bytes);
      return true;
    };
    const httplib::Result result = server.client().send(request);
    ASSERT_TRUE(result) << stream.path;
    EXPECT_EQ(result->get_header_value("Content-Type"), stream.type);
    EXPECT_NE(text.find("\n" + stream.failure), std::string::npos) << stream.path << text.substr(text.size() - 300);
    EXPECT_EQ(server.wait(), 0);
  }
}

TEST(ServeFailures, DisconnectCancelsBeforeReply) {
  Server server(kStories, {"--parallel", "2"});
  httplib::Client impatient = server.client();
  impatient.set_read_timeout(0, 200'000);
  const json body = {{"prompt", "Once"}, {"max_tokens", 400}, {"ignore_eos", true}, {"n", 64}};
  EXPECT_FALSE(impatient.Post("/v1/completions", body.dump(), "application/json"));
  server.await("texts_cancelled_total", 1);
  EXPECT_LT(server.metric("texts_total"), 64);
}

// An InferenceService in this process.
struct LocalService {
  Runtime runtime;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<InferenceService> service;
  std::shared_ptr<EngineLoop> engine;

  explicit LocalService(const ServiceOptions& service_options) : engine(service_options.engine) {
    RuntimeOptions options;
    options.model = kStories;
    EXPECT_EQ(open_runtime(options, &runtime).message(), "");
    EXPECT_EQ(load_tokenizer(kStories, &tokenizer).message(), "");
    std::unique_ptr<Scheduler> scheduler;
    EXPECT_EQ(open_scheduler(*runtime.model, *runtime.team, scheduler_options(runtime), &scheduler).message(), "");
    service = std::make_unique<InferenceService>(std::move(scheduler), tokenizer, service_options);
  }

  void drain() { engine->signal(SIGTERM); }
  void run() {
    engine->run([this](std::vector<InferenceService*>* services) { *services = {service.get()}; });
  }
};

// A bad_alloc while an event is delivered fails that request only.
TEST(ServeFailures, OutOfMemoryEndsOneRequest) {
  LocalService local({});
  InferenceService& service = *local.service;
  const std::shared_ptr<const Tokenizer>& tokenizer = local.tokenizer;
  const int32_t eos = *eos_id(*tokenizer);
  InferenceRequest request;
  request.prompt = {1, 5, 9};
  request.options.max_tokens = 20;
  request.options.ignore_eos = true;
  const InferenceRequest good = request;
  // Called on the engine thread, for special tokens only.
  request.is_mark = [](std::string_view) -> bool { throw std::bad_alloc(); };
  request.options.sampler.logit_bias = {{eos, 100}};
  std::unique_ptr<RequestGroup> failed, completed;
  FailureKind kind = FailureKind::none;
  ASSERT_EQ(service.submit({request}, &failed, &kind).message(), "");
  ASSERT_EQ(service.submit({good}, &completed, &kind).message(), "");
  local.drain();
  local.run();
  const auto is_connected = [] { return true; };
  std::optional<RequestEvent> event = failed->next_event(is_connected);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->failure.message(), "request: out of memory");
  EXPECT_EQ(event->failure_kind, FailureKind::internal);
  int64_t tokens = 0;
  while (!completed->is_over()) {
    event = completed->next_event(is_connected);
    EXPECT_EQ(event->failure.message(), "");
    tokens += event->id.has_value();
  }
  EXPECT_EQ(tokens, 20);
}

// The buffer is large, so that the measurement takes longer than the request that arrives meanwhile.
TEST(ServeFailures, RequestsAbortBandwidthMeasurement) {
  ServiceOptions options;
  options.roof_buffer_bytes = int64_t{512} << 20;
  LocalService local(options);
  InferenceService& service = *local.service;
  InferenceRequest request;
  request.prompt = {1, 5, 9};
  request.options.max_tokens = 1;
  std::thread client([&] {
    std::ignore = service.metrics();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::unique_ptr<RequestGroup> group;
    FailureKind kind = FailureKind::none;
    const bool is_measured = service.metrics().roof_bytes_per_second > 0;
    EXPECT_EQ(service.submit({request}, &group, &kind).message(), "");
    EXPECT_TRUE(group->next_event([] { return true; }));
    EXPECT_EQ(service.metrics().roof_bytes_per_second > 0, is_measured) << "the request waited for it";
    while (service.metrics().roof_bytes_per_second == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    local.drain();
  });
  local.run();
  client.join();
}

}  // namespace
}  // namespace pinion
