#include "engine/model.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>

#include "engine/calibration.h"
#include "engine/first_touch.h"
#include "engine/memory.h"
#include "engine/weight_format.h"
#include "kernels/math.h"
#include "loader/convert.h"
#include "loader/fused_experts.h"
#include "loader/generation_config.h"
#include "loader/pack.h"
#include "loader/stored_weights.h"

namespace pinion {
namespace {

// Collects what a model needs of its checkpoint: matrices to pack, small vectors to read at once.
struct Binder {
  Model* model;
  const LoadOptions* options;
  std::vector<PackJob> jobs;
  std::set<std::string> bound;  // tensors by name

  Error bind(const std::string& name, std::initializer_list<int64_t> shape, TensorView* out) {
    bound.insert(name);
    return model->checkpoint.bind(name, shape, out);
  }

  // A tensor that nothing asked for means that the model computes something else than its config says.
  Error nothing_left() const {
    std::vector<std::string_view> left;
    for (const TensorView& tensor : model->checkpoint.tensors) {
      const bool copy_of_embedding = model->config.tied_head && tensor.name == model->config.names.head + ".weight";
      const bool rope_table = tensor.name.ends_with(".rotary_emb.inv_freq");  // old files hold it; config.json says it
      if (!bound.contains(tensor.name) && !copy_of_embedding && !rope_table) left.push_back(tensor.name);
    }
    if (left.empty()) return {};
    const std::string others = left.size() > 1 ? ", and " + std::to_string(left.size() - 1) + " more" : "";
    return error("tensor that a " + model->config.family + " model of this config.json does not have",
                 model->checkpoint.folder + ": " + std::string(left[0]) + others);
  }

  // out = scale * the tensor + offset.
  Error vector(const std::string& name, int64_t n, float scale, float offset, const float** out) {
    TensorView tensor;
    if (Error e = bind(name, {n}, &tensor)) return e;
    return vector(tensor, scale, offset, out);
  }

  Error vector(const TensorView& tensor, float scale, float offset, const float** out) {
    const int64_t n = tensor.elements();
    auto values = std::make_unique<float[]>(static_cast<size_t>(n));
    read_floats(tensor, values.get());
    for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = scale * values[static_cast<size_t>(i)] + offset;
    if (!std::all_of(values.get(), values.get() + n, [](float v) { return std::isfinite(v); })) {
      return error("NaN or infinity in the weights", model->checkpoint.folder + ": " + tensor.name);
    }
    *out = values.get();
    model->vectors.push_back(std::move(values));
    model->parameters += n;
    return {};
  }

  Error norm(const std::string& module, int64_t n, const float** out) {
    return vector(module + ".weight", n, 1.0f, model->config.norm_offset, out);
  }
  // Where the family may do without: then there is no module of that kind, and the pointer stays null.
  Error optional_norm(const std::string& module, int64_t n, const float** out) {
    return module.empty() ? Error{} : norm(module, n, out);
  }

  void tell_conversion(const std::string& module, const std::string& from, const Packing& to) {
    const auto same = std::ranges::find_if(model->conversions, [&](const Conversion& one) {
      return one.from == from && one.why_not == to.why_not && one.to == to.format;
    });
    if (same == model->conversions.end()) {
      model->conversions.push_back({from, to.why_not, to.format, module, 1});
    } else {
      ++same->modules;
    }
  }

  struct Part {
    std::string module;
    int64_t n;
    Linear* out;
    bool is_exact = false;  // bf16 in every mode; such a tensor has no other part
  };

  // A tensor that is several matrices, one below the other.
  Error linear(const std::string& module, int64_t k, bool has_bias, float bias_scale, std::span<const Part> parts) {
    int64_t rows = 0;
    for (const Part& part : parts) rows += part.n;
    LinearWeight found;
    const float* bias = nullptr;
    if (Error e = bind_linear(model->checkpoint, model->config.quantization, module, rows, k, &found)) return e;
    bound.insert(found.tensors.begin(), found.tensors.end());
    if (has_bias) {
      if (Error e = vector(module + ".bias", rows, bias_scale, 0.0f, &bias)) return e;
    }
    model->parameters += rows * k;
    const Packing packing = parts[0].is_exact ? Packing{} : packing_of(*options, model->config, module, found);
    if (!found.stored_as.empty() && !packing.as_stored) tell_conversion(module, found.stored_as, packing);
    int64_t first = 0;
    for (const Part& part : parts) {
      LinearWeight own = rows_of(found, first, part.n);
      jobs.push_back({std::move(own.weight), packing.format, &part.out->weight, std::move(own.scale),
                      reader_of(own.coded, packing.as_stored)});
      jobs.back().rotation = packing.rotation;
      if (bias) part.out->bias = bias + first;
      first += part.n;
    }
    return {};
  }

  // The last two jobs, a gate and what it multiplies.
  void put_in_turns() {
    PackJob &gate = jobs[jobs.size() - 2], &up = jobs[jobs.size() - 1];
    gate.in_turns = up.in_turns = turns_of(gate, up);
  }

  // Matrices that share an input: those of one name are one tensor.
  Error linears(int64_t k, bool has_bias, std::initializer_list<Part> parts) {
    for (const Part* first = parts.begin(); first != parts.end();) {
      const Part* last = std::find_if(first, parts.end(), [&](const Part& p) { return p.module != first->module; });
      if (Error e = linear(first->module, k, has_bias, 1.0f, {first, last})) return e;
      first = last;
    }
    return {};
  }

  // The matrix that ends a branch, and the norm after it, where the family has one.
  Error branch_end(const std::string& module, int64_t k, bool has_bias, Linear* out, const std::string& norm_module,
                   const float** norm_weight) {
    const int64_t n = model->config.hidden_size;
    const Part whole = {module, n, out};
    const float bias_scale = norm_module.empty() ? model->config.branch_scale : 1.0f;
    if (Error e = linear(module, k, has_bias, bias_scale, {&whole, 1})) return e;
    return optional_norm(norm_module, n, norm_weight);
  }

  Error fused_experts(int64_t layer, Layer* out) {
    const ModelConfig& c = model->config;
    const int64_t inner = c.experts.inner_size, hidden = c.hidden_size;
    FusedExperts found;
    if (Error e = bind_fused_experts(model->checkpoint, c, layer, &found)) return e;
    for (const FusedMatrix* m : {&found.gate_up, &found.down}) {
      for (const TensorView* tensor : {&m->values, &m->scales, &m->bias}) bound.insert(tensor->name);
      model->parameters += c.experts.count * m->n * m->k;
    }
    const float *gate_up_bias, *down_bias;
    if (Error e = vector(found.gate_up.bias, 1.0f, 0.0f, &gate_up_bias)) return e;
    split_gate_up(inner, {model->vectors.back().get(), static_cast<size_t>(found.gate_up.bias.elements())});
    if (Error e = vector(found.down.bias, c.branch_scale, 0.0f, &down_bias)) return e;
    const Format gate_up = weight_format(*options, found.gate_up.module + ".weight", false);
    const Format down = weight_format(*options, found.down.module + ".weight", false);
    const auto tell = [&](const FusedMatrix& m, Format to) {
      const bool is_exact = m.stored_as.empty() || to == Format::bf16;  // which holds MXFP4's numbers, too
      if (!is_exact) tell_conversion(m.module, m.stored_as, {.format = to});
    };
    tell(found.gate_up, gate_up);
    tell(found.down, down);
    const auto add = [&](PackJob job) {
      job.rotation = weight_rotation(*options, job.format, job.source.shape[1]);
      jobs.push_back(std::move(job));
    };
    for (int64_t i = 0; i < c.experts.count; ++i) {
      Expert& expert = out->experts[static_cast<size_t>(i)];
      add(expert_job(found.gate_up, i, 0, 2, gate_up, &expert.gate.weight));
      add(expert_job(found.gate_up, i, 1, 2, gate_up, &expert.up.weight));
      put_in_turns();
      add(expert_job(found.down, i, 0, 1, down, &expert.down.weight));
      expert.gate.bias = gate_up_bias + i * 2 * inner;
      expert.up.bias = expert.gate.bias + inner;
      expert.down.bias = down_bias + i * hidden;
    }
    return {};
  }

  Error separate_experts(int64_t layer, Layer* out) {
    const ModelConfig& c = model->config;
    const int64_t inner = c.experts.inner_size;
    for (int64_t i = 0; i < c.experts.count; ++i) {
      Expert& expert = out->experts[static_cast<size_t>(i)];
      const auto name = [&](const std::string& pattern) { return module_name(pattern, layer, i); };
      if (Error e = linears(
              c.hidden_size, c.mlp_bias,
              {{name(c.names.expert_gate), inner, &expert.gate}, {name(c.names.expert_up), inner, &expert.up}})) {
        return e;
      }
      put_in_turns();
      if (Error e = branch_end(name(c.names.expert_down), inner, c.mlp_bias, &expert.down, {}, nullptr)) return e;
    }
    return {};
  }

  Error experts(int64_t layer, Layer* out) {
    const ModelConfig& c = model->config;
    const int64_t parameters = model->parameters;
    const size_t first_job = jobs.size();
    if (Error e = linears(c.hidden_size, c.experts.router_bias,
                          {{module_name(c.names.router, layer), c.experts.count, &out->router, true}})) {
      return e;
    }
    const int64_t router_parameters = model->parameters - parameters;
    out->experts.resize(static_cast<size_t>(c.experts.count));
    if (Error e = c.experts.fused ? fused_experts(layer, out) : separate_experts(layer, out)) return e;
    model->expert_parameters += model->parameters - parameters - router_parameters;
    model->expert_bytes += packed_bytes(std::span(jobs).subspan(first_job + 1));
    return {};
  }

  // conv.weight [channels, 1, taps] -> [taps][channels]
  Error convolution(const std::string& module, const float** out) {
    const GatedDelta& d = model->config.delta;
    TensorView tensor;
    if (Error e = bind(module + ".weight", {d.channels(), 1, d.taps}, &tensor)) return e;
    std::vector<float> stored(static_cast<size_t>(d.channels() * d.taps));
    read_floats(tensor, stored.data());
    auto values = std::make_unique<float[]>(stored.size());
    for (size_t i = 0; i < stored.size(); ++i) {
      const auto taps = static_cast<size_t>(d.taps);
      values[i % taps * static_cast<size_t>(d.channels()) + i / taps] = stored[i];
    }
    if (!std::ranges::all_of(stored, [](float v) { return std::isfinite(v); })) {
      return error("NaN or infinity in the weights", model->checkpoint.folder + ": " + tensor.name);
    }
    *out = values.get();
    model->vectors.push_back(std::move(values));
    model->parameters += std::ssize(stored);
    return {};
  }

  // The file holds the logarithm.
  Error decay_rate(const std::string& name, const float** out) {
    const int64_t n = model->config.delta.value_heads;
    if (Error e = vector(name, n, 1.0f, 0.0f, out)) return e;
    float* rate = model->vectors.back().get();
    for (int64_t i = 0; i < n; ++i) rate[i] = static_cast<float>(portable_exp(static_cast<double>(rate[i])));
    if (std::all_of(rate, rate + n, [](float v) { return std::isfinite(v); })) return {};
    return error("out of range", model->checkpoint.folder + ": " + name, "logarithms of floats");
  }

  Error delta(int64_t index, Layer* out) {
    const ModelConfig& c = model->config;
    const GatedDelta& d = c.delta;
    const auto name = [&](const std::string& pattern) { return module_name(pattern, index); };
    DeltaLayer& l = out->delta;
    if (Error e = linears(c.hidden_size, false,
                          {{name(c.names.delta_qkv), d.channels(), &l.qkv},
                           {name(c.names.delta_z), d.value_width(), &l.z},
                           {name(c.names.delta_b), d.value_heads, &l.b},
                           {name(c.names.delta_a), d.value_heads, &l.a}})) {
      return e;
    }
    if (Error e = convolution(name(c.names.delta_conv), &l.conv)) return e;
    if (Error e = decay_rate(name(c.names.delta_rate), &l.rate)) return e;
    if (Error e = vector(name(c.names.delta_step), d.value_heads, 1.0f, 0.0f, &l.step)) return e;
    if (Error e = vector(name(c.names.delta_norm) + ".weight", d.value_dim, 1.0f, 0.0f, &l.norm)) return e;
    return branch_end(name(c.names.delta_out), d.value_width(), false, &out->o, name(c.names.attention_out_norm),
                      &out->attention_out_norm);
  }

  Error attention(int64_t index, Layer* out) {
    const ModelConfig& c = model->config;
    const auto name = [&](const std::string& pattern) { return module_name(pattern, index); };
    const int64_t q = c.heads * c.head_dim;
    const int64_t kv = c.kv_heads * c.head_dim;
    const bool whole = c.qk_norm == QkNorm::all_heads;
    if (Error e = linears(c.hidden_size, c.qkv_bias,
                          {{name(c.names.q), c.attention_gate ? 2 * q : q, &out->q},
                           {name(c.names.k), kv, &out->k},
                           {name(c.names.v), kv, &out->v}})) {
      return e;
    }
    if (c.qk_norm != QkNorm::none) {
      if (Error e = norm(name(c.names.q_norm), whole ? q : c.head_dim, &out->q_norm)) return e;
      if (Error e = norm(name(c.names.k_norm), whole ? kv : c.head_dim, &out->k_norm)) return e;
    }
    if (!c.names.sinks.empty()) {
      if (Error e = vector(name(c.names.sinks), c.heads, 1.0f, 0.0f, &out->sinks)) return e;
    }
    return branch_end(name(c.names.o), q, c.o_bias, &out->o, name(c.names.attention_out_norm),
                      &out->attention_out_norm);
  }

  Error layer(int64_t index, Layer* out) {
    const ModelConfig& c = model->config;
    const auto name = [&](const std::string& pattern) { return module_name(pattern, index); };
    const int64_t hidden = c.hidden_size, inner = c.intermediate_size;
    place_layer(c, index, out);
    if (Error e = optional_norm(name(c.names.attention_norm), hidden, &out->attention_norm)) return e;
    if (Error e = out->recurrent ? delta(index, out) : attention(index, out)) return e;
    if (Error e = optional_norm(name(c.names.mlp_norm), hidden, &out->mlp_norm)) return e;
    if (c.has_experts(index)) return experts(index, out);
    if (Error e = linears(hidden, c.mlp_bias,
                          {{name(c.names.gate), inner, &out->gate}, {name(c.names.up), inner, &out->up}})) {
      return e;
    }
    put_in_turns();
    return branch_end(name(c.names.down), inner, c.mlp_bias, &out->down, name(c.names.mlp_out_norm),
                      &out->mlp_out_norm);
  }

  Error everything() {
    const ModelConfig& c = model->config;
    const std::string embedding = c.names.embedding + ".weight";
    if (Error e = bind(embedding, {c.vocab_size, c.hidden_size}, &model->embedding)) return e;
    model->layers.resize(static_cast<size_t>(c.layers));
    for (int64_t i = 0; i < c.layers; ++i) {
      if (Error e = layer(i, &model->layers[static_cast<size_t>(i)])) return e;
    }
    if (Error e = norm(c.names.final_norm, c.hidden_size, &model->final_norm)) return e;
    model->parameters += c.vocab_size * c.hidden_size;
    if (!c.tied_head) return linears(c.hidden_size, false, {{c.names.head, c.vocab_size, &model->head}});
    const Format format = weight_format(*options, c.names.head + ".weight", true);
    jobs.push_back({model->embedding, format, &model->head.weight});
    jobs.back().rotation = weight_rotation(*options, format, c.hidden_size);
    return {};
  }
};

void add_eos_ids(std::span<const int64_t> ids, Model* model) {
  for (const int64_t id : ids) {
    if (std::ranges::find(model->eos_ids, id) == model->eos_ids.end()) {
      model->eos_ids.push_back(static_cast<int32_t>(id));
    }
  }
}

// Reads everything but the matrices, which become the binder's jobs.
Error bind_model(const std::string& folder, const LoadOptions& options, Model* model, Binder* binder) {
  model->quant = options.quant;
  model->calibration = calibration_name(options.calibration);
  GenerationDefaults generation;
  if (Error e = read_model_config(folder, &model->config)) return e;
  if (Error e = check_head_format(options, model->config)) return e;
  if (Error e = check_calibration(options, model->config)) return e;
  if (Error e = read_generation_config(folder, &generation)) return e;
  if (Error e = open_checkpoint(folder, &model->checkpoint)) return e;
  if (Error e = select_tensors(model->config.tensors, &model->checkpoint)) return e;
  add_eos_ids(model->config.eos_ids, model);
  add_eos_ids(generation.eos_ids, model);
  if (Error e = binder->everything()) return e;
  if (Error e = binder->nothing_left()) return e;
  model->weight_bytes = packed_bytes(binder->jobs);
  if (!options.cache_folder.empty()) {
    model->cache = pack_cache_of(options.cache_folder, model->checkpoint, binder->jobs, model->calibration);
  }
  return {};
}

Error pack_model(const LoadOptions& options, std::span<PackJob> jobs, Model* model) {
  if (Error e = allocate_arena(model->weight_bytes, &model->arena)) return e;
  Error e = place_all(jobs, model->arena.data);
  if (!e && options.readers) touch_first(*options.readers, *model, model->arena.data);
  if (!e && options.calibration.empty()) {
    e = pack_all(jobs, model->arena.data, {options.threads, true, options.progress});
  } else if (!e) {
    e = pack_calibrated(options, jobs, model);
  }
  if (e) e.where = model->checkpoint.folder + ": " + e.where;
  return e;
}

// Only when nobody else wants the core: the team's barriers wait for the slowest. Signals are for the other threads.
void be_in_the_background() {
  const sched_param none = {};
  pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

void place_layer(const ModelConfig& config, int64_t index, Layer* out) {
  const auto i = static_cast<size_t>(index);
  out->recurrent = config.recurrent[i];
  out->slot = std::count(config.recurrent.begin(), config.recurrent.begin() + index, config.recurrent[i]);
  out->window = config.windows[i];
  out->rope = config.layer_ropes[i];
}

Error load_model(const std::string& folder, const LoadOptions& options, std::unique_ptr<Model>* out) {
  const auto start = std::chrono::steady_clock::now();
  auto model = std::make_unique<Model>();
  Binder binder{model.get(), &options, {}, {}};
  if (Error e = bind_model(folder, options, model.get(), &binder)) return e;
  if (Error e = check_memory(model->weight_bytes, folder)) return e;
  if (!model->cache.path.empty() && !open_pack_cache(model->cache, &model->cached)) {
    const std::span<const std::byte> packed = packed_contents(model->cache, model->cached);
    if (Error e = place_all(binder.jobs, packed.data())) return e;
    prefetch_pages(packed);
  } else if (Error e = pack_model(options, binder.jobs, model.get())) {
    return e;
  }

  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  model->load_seconds = elapsed.count();
  *out = std::move(model);
  return {};
}

Error write_to_cache(const Model& model) {
  if (model.cache.path.empty() || model.from_cache()) return {};
  return write_pack_cache(model.cache, model.arena.data);
}

void write_to_cache_in_background(Model* model) {
  if (model->cache.path.empty() || model->from_cache()) return;
#if defined(__SANITIZE_ADDRESS__)
  // Its allocator cannot be forked while another thread is in it, and chat templates are rendered in a forked child.
  (void)write_to_cache(*model);
  return;
#endif
  try {
    model->cache_writer = std::jthread([model] {
      be_in_the_background();
      (void)write_to_cache(*model);
    });
  } catch (const std::system_error&) {
    // No thread to be had: as any other failure here, it costs the next start some time.
  }
}

Error find_in_cache(const std::string& folder, const LoadOptions& options, PackCache* out) {
  Model model;
  Binder binder{&model, &options, {}, {}};
  if (Error e = bind_model(folder, options, &model, &binder)) return e;
  *out = model.cache;
  return open_pack_cache(model.cache, &model.cached);
}

}  // namespace pinion
