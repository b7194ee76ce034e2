// The Python module, over pinion.h. Calls that wait for a model's passes release the GIL, which callbacks need.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>

#include "apps/library/owned.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pinion {
namespace {

// A failed call; pinion.Error in Python.
struct CallError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(pinion_status status) {
  if (status == PINION_ERROR_MEMORY) throw std::bad_alloc();
  if (status != PINION_OK) throw CallError(pinion_error_text());
}

// Calls a function of pinion.h that may wait.
template <class F>
void check_released(const F& call) {
  const nb::gil_scoped_release released;
  check(call());
}

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;

Ids taken(int32_t* ids, size_t count) {
  const std::unique_ptr<int32_t, Closes<pinion_free>> owner(ids);
  return {ids, ids + count};
}

// The result of a function of pinion.h that returns ids.
template <auto ask>
Ids ids_of(const auto& self) {
  int32_t* ids = nullptr;
  size_t count = 0;
  check(ask(self.handle.get(), &ids, &count));
  return taken(ids, count);
}

std::vector<const char*> pointers_to(const Texts& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

const char* text_or_null(const std::optional<std::string>& text) { return text ? text->c_str() : nullptr; }

// A Python callback for tokens. An exception in it ends the generation, and is raised again afterwards.
struct Listener {
  nb::object function;
  std::exception_ptr raised = {};

  static int put(void* user, int32_t id, const char* text, size_t bytes) {
    auto* self = static_cast<Listener*>(user);
    const nb::gil_scoped_acquire gil;
    try {
      const nb::object answer = self->function(id, nb::str(text, bytes));
      return nb::isinstance<nb::bool_>(answer) && !nb::cast<bool>(answer);
    } catch (...) {
      self->raised = std::current_exception();
      return 1;
    }
  }
};

// Options of a generation, with the arrays that the C options point to.
struct Sampling {
  std::vector<std::pair<std::string, double>> named;
  std::optional<uint64_t> seed;
  Texts stops;
  int64_t max_tokens = 256;
  bool ignore_end = false;
  std::vector<pinion_setting> settings = {};
  std::vector<const char*> stop_pointers = {};

  pinion_generate_options options(Listener* listener) {
    settings.clear();
    for (const auto& [name, value] : named) settings.push_back({name.c_str(), value});
    stop_pointers = pointers_to(stops);
    pinion_generate_options out = {};
    out.size = sizeof out;
    out.max_tokens = max_tokens == 0 ? -1 : max_tokens;
    out.settings = settings.data();
    out.setting_count = settings.size();
    out.seed = seed ? &*seed : nullptr;
    out.stops = stop_pointers.data();
    out.stop_count = stop_pointers.size();
    out.ignore_end = ignore_end;
    out.user = listener;
    out.on_token = listener ? Listener::put : nullptr;
    return out;
  }
};

// Keywords: max_tokens, seed, stop and ignore_end; any other is a sampler setting.
Sampling sampling_of(const nb::kwargs& words) {
  Sampling out;
  for (const auto& [key, value] : words) {
    const auto name = nb::cast<std::string>(key);
    if (name == "max_tokens") {
      out.max_tokens = nb::cast<int64_t>(value);
    } else if (name == "seed") {
      out.seed = nb::cast<uint64_t>(value);
    } else if (name == "stop") {
      out.stops = nb::cast<Texts>(value);
    } else if (name == "ignore_end") {
      out.ignore_end = nb::cast<bool>(value);
    } else {
      out.named.emplace_back(name, nb::cast<double>(value));
    }
  }
  return out;
}

struct Result {
  OwnResult handle;  // of a request that succeeded

  explicit Result(OwnResult result) : handle(std::move(result)) {
    if (handle->status != PINION_OK) throw CallError(handle->error);
  }
  Ids ids() const { return {handle->ids, handle->ids + handle->id_count}; }
  std::optional<nb::str> text() const {
    return handle->text ? std::optional(nb::str(handle->text, handle->text_bytes)) : std::nullopt;
  }
  const char* finish() const { return std::array{"stop", "length", "context"}[handle->finish]; }
};

struct Model;

struct Session {
  OwnSession handle;
  int64_t vocab_size;
  const Model* model;

  nb::object evaluate(const Ids& ids, bool all);
  Result generate(const nb::object& prompt, const nb::object& on_token, const nb::kwargs& words);
};

struct Model {
  OwnModel handle;

  pinion_model_info info() const {
    pinion_model_info out = {};
    out.size = sizeof out;
    check(pinion_model_describe(handle.get(), &out));
    return out;
  }
  Ids tokenize(const std::string& text, bool add_special) const {
    int32_t* ids = nullptr;
    size_t count = 0;
    check(pinion_tokenize(handle.get(), text.data(), text.size(), add_special, &ids, &count));
    return taken(ids, count);
  }
  nb::str detokenize(const Ids& ids, bool keep_special) const {
    char* text = nullptr;
    size_t bytes = 0;
    check(pinion_detokenize(handle.get(), ids.data(), ids.size(), keep_special, &text, &bytes));
    const std::unique_ptr<char, Closes<pinion_free>> owner(text);
    return nb::str(text, bytes);
  }
  // Accepts text or ids.
  Ids prompt_of(const nb::handle& prompt) const {
    return nb::isinstance<nb::str>(prompt) ? tokenize(nb::cast<std::string>(prompt), true) : nb::cast<Ids>(prompt);
  }
};

nb::object Session::evaluate(const Ids& ids, bool all) {
  const size_t rows = all ? ids.size() : 1, columns = static_cast<size_t>(vocab_size);
  auto logits = std::make_unique<float[]>(rows * columns);
  check_released(
      [&] { return pinion_session_evaluate(handle.get(), ids.data(), ids.size(), all, logits.get(), rows * columns); });
  float* numbers = logits.release();
  const nb::capsule owner(numbers, [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
  if (!all) return nb::cast(nb::ndarray<nb::numpy, float>(numbers, {columns}, owner));
  return nb::cast(nb::ndarray<nb::numpy, float>(numbers, {rows, columns}, owner));
}

Result Session::generate(const nb::object& prompt, const nb::object& on_token, const nb::kwargs& words) {
  const Ids ids = model->prompt_of(prompt);
  Sampling sampling = sampling_of(words);
  Listener listener{on_token};
  const pinion_generate_options options = sampling.options(on_token.is_none() ? nullptr : &listener);
  pinion_result* result = nullptr;
  check_released([&] { return pinion_generate(handle.get(), ids.data(), ids.size(), &options, &result); });
  OwnResult owner(result);
  if (listener.raised) std::rethrow_exception(listener.raised);
  return Result(std::move(owner));
}

std::vector<Result> generate_batch(const Model& model, const nb::list& prompts, int64_t parallel,
                                   const nb::kwargs& words) {
  std::vector<Ids> ids;
  for (const nb::handle prompt : prompts) ids.push_back(model.prompt_of(prompt));
  Sampling sampling = sampling_of(words);
  const pinion_generate_options options = sampling.options(nullptr);
  std::vector<pinion_request> requests;
  for (const Ids& prompt_ids : ids) requests.push_back({prompt_ids.data(), prompt_ids.size(), &options});
  std::vector<pinion_result*> raw(requests.size());
  check_released([&] {
    return pinion_generate_batch(model.handle.get(), requests.data(), requests.size(), parallel, raw.data());
  });
  std::vector<OwnResult> owners(raw.begin(), raw.end());
  std::vector<Result> results;
  for (OwnResult& owner : owners) results.emplace_back(std::move(owner));
  return results;
}

nb::object embed(const Model& model, const Texts& texts, const std::optional<std::string>& pooling,
                 const std::optional<std::string>& prompt_name, const std::optional<std::string>& query,
                 int64_t dimensions, int64_t parallel) {
  std::vector<const char*> list;
  for (const std::string& text : texts) list.push_back(text.c_str());
  pinion_embed_options options = {sizeof options};
  options.pooling = text_or_null(pooling);
  options.prompt_name = text_or_null(prompt_name);
  options.query = text_or_null(query);
  options.dimensions = dimensions;
  options.parallel = parallel;
  float* numbers = nullptr;
  size_t width = 0;
  check_released(
      [&] { return pinion_embed(model.handle.get(), list.data(), list.size(), &options, &numbers, &width); });
  const nb::capsule owner(numbers, [](void* memory) noexcept { pinion_free(memory); });
  return nb::cast(nb::ndarray<nb::numpy, float>(numbers, {texts.size(), width}, owner));
}

// Returns (text, ids); ids are None if the folder has no tokenizer.
nb::tuple render_chat(const Model& model, const nb::object& messages, const nb::object& tools,
                      const nb::object& variables, bool add_generation_prompt,
                      const std::optional<std::string>& template_name, bool continue_final_message) {
  const nb::object dumps = nb::module_::import_("json").attr("dumps");
  const auto json_of = [&](const nb::object& value) -> std::optional<std::string> {
    if (value.is_none()) return {};
    return nb::cast<std::string>(dumps(value));
  };
  const std::optional<std::string> all = json_of(messages), tool_list = json_of(tools), names = json_of(variables);
  pinion_chat chat = {};
  chat.size = sizeof chat;
  chat.messages = text_or_null(all);
  chat.tools = text_or_null(tool_list);
  chat.variables = text_or_null(names);
  chat.template_name = text_or_null(template_name);
  chat.no_generation_prompt = !add_generation_prompt;
  chat.continue_final_message = continue_final_message;
  char* text = nullptr;
  int32_t* ids = nullptr;
  size_t count = 0;
  const bool has_ids = model.info().has_tokenizer != 0;
  check(pinion_chat_render(model.handle.get(), &chat, &text, has_ids ? &ids : nullptr, &count));
  const std::unique_ptr<char, Closes<pinion_free>> owner(text);
  return nb::make_tuple(nb::str(text), has_ids ? nb::cast(taken(ids, count)) : nb::none());
}

void open_model(Model* self, const std::string& folder, const std::optional<std::string>& quant,
                const std::optional<std::string>& head, const std::optional<std::string>& kv, const Texts& keep,
                const std::optional<std::string>& calibrate, int32_t threads, const std::optional<std::string>& cores,
                const std::optional<std::string>& kernels, bool no_cache,
                const std::optional<std::string>& cache_folder, const Texts& lora) {
  const std::vector<const char*> patterns = pointers_to(keep), adapters = pointers_to(lora);
  pinion_model_options options = {};
  options.size = sizeof options;
  options.quant = text_or_null(quant);
  options.head = text_or_null(head);
  options.kv = text_or_null(kv);
  options.keep = patterns.data();
  options.keep_count = patterns.size();
  options.calibrate = text_or_null(calibrate);
  options.threads = threads;
  options.cores = text_or_null(cores);
  options.kernels = text_or_null(kernels);
  options.no_cache = no_cache;
  options.cache_folder = text_or_null(cache_folder);
  options.lora = adapters.data();
  options.lora_count = adapters.size();
  pinion_model* model = nullptr;
  check_released([&] { return pinion_model_open(folder.c_str(), &options, &model); });
  new (self) Model{OwnModel(model)};
}

Session open_session(const Model& model, int64_t context) {
  pinion_session* session = nullptr;
  check_released([&] { return pinion_session_open(model.handle.get(), context, &session); });
  return {OwnSession(session), model.info().vocab_size, &model};
}

void bind_model(nb::module_& m) {
  nb::class_<Model>(m, "Model", "A model, opened from a folder or from ORG/NAME in the Hugging Face cache.")
      .def("__init__", &open_model, "folder"_a, nb::kw_only(), "quant"_a = nb::none(), "head"_a = nb::none(),
           "kv"_a = nb::none(), "keep"_a = Texts(), "calibrate"_a = nb::none(), "threads"_a = 0, "cores"_a = nb::none(),
           "kernels"_a = nb::none(), "no_cache"_a = false, "cache_folder"_a = nb::none(), "lora"_a = Texts())
      .def("tokenize", &Model::tokenize, "text"_a, "add_special"_a = true, "Text to ids.")
      .def("detokenize", &Model::detokenize, "ids"_a, "keep_special"_a = false, "Ids to text.")
      .def("chat", &render_chat, "messages"_a, "tools"_a = nb::none(), "variables"_a = nb::none(),
           "add_generation_prompt"_a = true, "template_name"_a = nb::none(), "continue_final_message"_a = false,
           "Renders a conversation by the folder's chat template: (text, ids).")
      .def("session", &open_session, "context"_a = 0, nb::keep_alive<0, 1>(),
           "A session: the model's state for one sequence of tokens.")
      .def("generate_batch", &generate_batch, "prompts"_a, "parallel"_a = 0, "words"_a,
           "Runs many requests at once, each with the same result as alone; keywords as for Session.generate.")
      .def("embed", &embed, "texts"_a, nb::kw_only(), "pooling"_a = nb::none(), "prompt_name"_a = nb::none(),
           "query"_a = nb::none(), "dimensions"_a = 0, "parallel"_a = 0,
           "Vectors of texts, or with a query the scores of documents: a NumPy array [texts, width].")
      .def_prop_ro("family", [](const Model& self) { return self.info().family; })
      .def_prop_ro("quant", [](const Model& self) { return self.info().quant; })
      .def_prop_ro("kv", [](const Model& self) { return self.info().kv; })
      .def_prop_ro("kernels", [](const Model& self) { return self.info().kernels; })
      .def_prop_ro("threads", [](const Model& self) { return self.info().threads; })
      .def_prop_ro("vocab_size", [](const Model& self) { return self.info().vocab_size; })
      .def_prop_ro("context_length", [](const Model& self) { return self.info().context_length; })
      .def_prop_ro("end_ids", [](const Model& self) { return ids_of<pinion_model_end_ids>(self); });
}

void bind_session(nb::module_& m) {
  nb::class_<Session>(m, "Session")
      .def("evaluate", &Session::evaluate, "ids"_a, "all"_a = false,
           "Appends ids and returns the logits after the last one, [vocab_size], or after each, [ids, vocab_size].")
      .def("generate", &Session::generate, "prompt"_a, "on_token"_a = nb::none(), "words"_a,
           "Continues a text or ids. on_token(id, text) may return False to end the generation. Keywords: max_tokens, "
           "seed, stop, ignore_end, and sampler settings such as temperature=0.")
      .def(
          "rewind",
          [](Session& self, int64_t tokens) {
            int64_t left = 0;
            check_released([&] { return pinion_session_rewind(self.handle.get(), tokens, &left); });
            return left;
          },
          "tokens"_a, "Keeps the first tokens; returns the number kept.")
      .def("interrupt", [](Session& self) { pinion_session_interrupt(self.handle.get()); })
      .def("save",
           [](Session& self) {
             void* state = nullptr;
             size_t bytes = 0;
             check_released([&] { return pinion_session_save(self.handle.get(), &state, &bytes); });
             const std::unique_ptr<void, Closes<pinion_free>> owner(state);
             return nb::bytes(state, bytes);
           })
      .def(
          "load",
          [](Session& self, const nb::bytes& state) {
            const void* data = state.data();
            const size_t bytes = state.size();
            check_released([&] { return pinion_session_load(self.handle.get(), data, bytes); });
          },
          "state"_a)
      .def_prop_ro("context", [](const Session& self) { return pinion_session_context(self.handle.get()); })
      .def_prop_ro("ids", [](const Session& self) { return ids_of<pinion_session_ids>(self); });
}

void bind_result(nb::module_& m) {
  nb::class_<Result>(m, "Result")
      .def_prop_ro("ids", &Result::ids)
      .def_prop_ro("text", &Result::text)
      .def_prop_ro("finish", &Result::finish)
      .def_prop_ro("reused_tokens", [](const Result& self) { return self.handle->reused_tokens; })
      .def_prop_ro("prefilled_tokens", [](const Result& self) { return self.handle->prefilled_tokens; })
      .def_prop_ro("prefill_seconds", [](const Result& self) { return self.handle->prefill_seconds; })
      .def_prop_ro("decode_seconds", [](const Result& self) { return self.handle->decode_seconds; })
      .def_prop_ro("seed", [](const Result& self) { return self.handle->seed; })
      .def_prop_ro("logits_hash", [](const Result& self) { return self.handle->logits_hash; });
}

}  // namespace
}  // namespace pinion

NB_MODULE(pinion, m) {
  m.doc() = "Language models from Hugging Face folders on the CPU.";
  nb::exception<pinion::CallError>(m, "Error", PyExc_RuntimeError);
  m.attr("__version__") = pinion_version();
  m.attr("build") = pinion_build();
  pinion::bind_model(m);
  pinion::bind_session(m);
  pinion::bind_result(m);
}
