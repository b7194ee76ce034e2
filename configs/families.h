// The data of configs/ that is built into the program, as the text of the files.
#pragma once

#include <span>
#include <string_view>

namespace pinion {

// Description of a model family: a file of configs/models, read by loader/config. `FIELD` is the name of a field of
// config.json. Required entries:
//   architectures, model_types   the config.json files that belong to the family
//   defaults                     values of fields that a config.json may lack
//   fixed                        fields that may have one value only
//   ignored                      fields without effect on the logits. common_fields.json lists both for all families
//   modules                      names of modules by key, see ModelConfig::names; keys of layers: kMatrixRows and
//                                kVectorRows in loader/config/layer_tensors.cpp. A norm that is absent is not computed;
//                                an mlp without a gate is down(activation(up(x)))
//   qkv_bias, o_bias, mlp_bias   true, false or FIELD
//   qk_norm                      none, heads, rotated_heads, all_heads, layer_norm_heads or layer_norm, see QkNorm.
//                                Without q_norm and k_norm in modules, norms have no weights, and only in layers
//                                with positional encoding
//   windows                      none, all, from_layer, pattern, pattern_after_dense, pattern_but_first,
//                                pattern_after_first, pattern_between, without_rope or chunks: the layers with a
//                                window, see loader/config/attention_config.cpp
//
// Optional entries, sizes and fields:
//   extends                      another family, from whose description this one differs (configs/models/README.md)
//   variants                     [{field, is, then}]: `then` is merged if the field (or its default) has this value
//   nested_fields                FIELDs that are objects, whose fields are read as if they were outside
//   extra_rows                   number of rows of the embedding behind those of vocab_size
//   image_layers                 FIELD with the indices of layers that attend to images only, which texts skip
//   head_rows                    FIELD with the number of logits, if it is smaller than vocab_size
//   renamed_fields               older names of fields -> current names
//   intermediate_size, kv_heads  FIELD, if it has another name
//   intermediate_factor          the default of that field in hidden sizes
//   intermediate_divisor         the mlp is narrower than that field by this factor
//   intermediate_sizes           true: intermediate_size may be a list with one number for each layer
//   adjusts_intermediate_size    true: block_auto_adjust_ff_dim and related fields change it (LFM2)
//   extra_layers                 FIELD with the number of layers after the model's own, which are skipped
//   skipped_tensors, renamed_tensors, skipped_endings      see TensorSelection
//   attends_both_ways            FIELD: true: tokens attend to later ones, too; the window counts both sides (Gemma)
//
// Norms, activations, scales:
//   norm                         layer: LayerNorm; default: RMSNorm
//   norm_bias                    true: norms have biases
//   first_norm                   false: the first layer has no attention_norm
//   head_dense, head_norm        (in modules) a matrix with the mlp's activation and a norm before the head
//   norm_weights                 false: norms of the layers, the final one and those of q and k have no weights
//   positions                    (in modules) an embedding of positions, which is added to that of the token
//   position_offset              number of its rows before the one of position 0
//   transposed                   true: the file stores the layers' matrices transposed, [inputs, rows]
//   embedding_norm               true: the final norm is applied to embeddings, too. In modules: another norm of them
//   norm_eps                     FIELD; default: rms_norm_eps
//   norm_offset                  number added to the stored weights of norms
//   qk_norm_if                   FIELD that switches qk_norm on
//   value_norm                   true: RMSNorm without weights over each head's value
//   o_norm, down_norm            (in modules) norms of the inputs of o and down
//   activation                   FIELD; default: hidden_act
//   activation_aliases           values of that field that stand for another activation
//   activation_limit             FIELD with the limit of clamped_swiglu, which replaces the activation
//   xielu                        (in modules) holds the parameters of the activation xielu
//   parallel_branches            true or FIELD: attention and mlp have the same input, x + attention(x) + mlp(x).
//                                parallel_mlp_norm (in modules) then replaces mlp_norm; it may be the attention's
//   embedding_scale, score_scale, branch_scale, logit_scale      a number, or {field, power} with power 1, -1, 0.5 or
//                                -0.5; `times`, another {field, power}, is a second factor; `optional`: the
//                                default applies if the field is null; `bf16`: true: rounded to bf16
//   score_cap, logit_cap         FIELD
//   output_scales                {qkv, key, value, o, gate_down, state_in, state_slices, state_out: FIELD}, see
//                                OutputScales. gate_down is a list of two numbers, state_slices of five: the slices
//                                z, x, B, C and dt of the output of state_in
//   head_bias                    true or FIELD: the head has a bias
//
// Attention:
//   qkv_by_head                  true: q, k and v are one module that holds, for each kv head, its queries, k and v
//   qkv_blocks                   number of blocks of heads for which that module holds queries, values and keys
//   qkv_limit                    FIELD: q, k and v are clamped
//   value_dim                    FIELD with the width of a head's values, if it is not head_dim
//   sliding_kv_heads             factor of the number of kv heads in layers with a window
//   o_bias                       (in modules) the tensor of the bias of o, which only the last layer has
//   attention_gate               true: q holds a gate next to each query. In modules: a matrix of the gates
//   gate_bias                    (in modules) a number for each head that is added to its gates
//   gate_by_head, gate_softplus  true: these are one gate for each head; softplus instead of sigmoids
//   half_window                  true: the window is half of the field's number
//   alibi                        true: scores fall linearly with the distance (ALiBi), by slopes of the heads
//   heads_by_layer               FIELD with a list of the layers' numbers of heads
//   latent_attention             true: see LatentConfig. modules then have kv_a, kv_a_norm and kv_b instead of k and v,
//                                and q_a, q_a_norm and q_b for queries with a latent of their own. GGUF files have k_b,
//                                each head's [rank, n], and v_b instead of kv_b
//   full_layer_heads             true: layers without a window have other heads: global_head_dim and, with
//                                attention_k_eq_v, num_global_key_value_heads; then they have no v, since their values
//                                are keys before norm and rope
//   shared_kv                    FIELD with the number of layers, at the end, that read keys and values of earlier ones
//   shared_kv_wide_mlp           FIELD: such layers have mlps of twice the size
//   sinks                        (in modules) a tensor with one extra softmax score for each head
//   sliding_sinks                true: only layers with a window have sinks
//   rope                         false or FIELD: no layer has positional encoding
//   rope_if                      {field, is}: no layer has it unless the field has this value
//   optional_theta               true: no layer has it if rope_theta is null
//   rotary_dims                  FIELD with the number of rotated elements, in place of partial_rotary_factor
//   attention_temperature        true: layers without positional encoding scale queries by attn_scale and floor_scale;
//                                temperature_power: true: attn_scale is a power
//   layer_thetas                 true: layer_rope_theta may list a theta for each layer
//   rope_reversed                true: heads are rotated by the negative angle
//   rope_theta, partial_rotary_factor    FIELD, if they have other names
//   rope_aliases                 values of rope_type that stand for another, as in older files of the family
//   rope_interleaved             true or FIELD: elements 0 and 1 of a head are rotated together, then 2 and 3 (GPT-J)
//   rope_where_sliding           layers without a window have no positional encoding: always, with_window (only if
//                                sliding_window is given) or without_parameters (only if rope_parameters lacks theirs)
//   partial_rotary, ntk_alpha, query_scaling, mrope, ropes_by_layer_type, no_rope_layers
//                                true: accept these rope settings, which are errors in other families
//
// Experts:
//   experts
//     layers                     the layers with experts: all, all_but_first, types_or_all_but_first, sparse_step,
//                                listed_or_step (see loader/config/experts_config.cpp) or by_type (the type moe of
//                                `recurrence`)
//     dense_count                FIELD of all_but_first; default: first_k_dense_replace
//     if                         FIELD that switches experts on
//     optional                   true: num_local_experts may be 0
//     count, per_token           FIELD, if they have other names
//     size                       FIELD with the experts' intermediate size
//     shared_size                FIELD with the intermediate size of the expert that every token activates
//     shared_count               FIELD with its size in experts. modules then have shared_gate, shared_up, shared_down,
//                                and shared_weight if a sigmoid weighs its output
//     normalised                 false or FIELD: the weights of the chosen experts sum to 1; default: they do
//     scales_inputs              true: weights are factors of the experts' inputs instead of their outputs
//     sigmoid                    true: scores are sigmoids
//     scale                      FIELD with a factor of the weights
//     jitter                     FIELD: SparseMixer; logits within twice this relative distance share a softmax
//     groups                     group-limited routing: count and kept, FIELDs; best, the number of scores that count
//                                for a group; field, is, else: only if the field has the value `is`, not `else`
//     router_bias                true: the router has a bias
//     fused                      true: the experts of a layer share tensors, see loader/quant/stored_weights.h
//     flat                       true: gate, up and, transposed, down share NAME [experts * size, hidden] each
//     others_rotate              true: layers without experts have positional encoding whatever rope_where_sliding says
//     sum_scale                  factor of the sum of experts and shared expert; default: 1
//     stacked                    true: the experts of a layer share NAME.weight [experts, 2 size, hidden], gate's rows
//                                before up's, and [experts, hidden, size]
//   router, expert_gate, expert_up, expert_down    (in modules)
//   stacked_gate_up, stacked_down          (in modules) tensors as in `stacked`, without .weight; used if present, also
//                                transposed
//   experts_out_norm           (in modules) mlp_out_norm of layers with experts only
//   expert_norm, expert_out_norm, shared_out_norm, router_scale, expert_scale    (in modules) experts beside an mlp,
//                                which has the names of the shared expert: norms of both, weights of the norm of the
//                                router's input, factors of the experts' weights
//   router_correction                      (in modules) a tensor added to the scores for the choice only, or with
//                                corrects_logits (in experts) to the logits
//
// Recurrent layers:
//   recurrence
//     kind                       gated_delta, kimi_delta (that with decays by channel), short_conv, mamba1, mamba2 or
//                                rg_lru
//     repeats                    true: layer_types lists the first layers only and repeats
//     layer_types                accepted values of the field layer_types. If a file lacks it, full_attn_idxs (from 0
//                                on), full_attn_layers (from 1 on) or full_attention_interval and attn_layer_offset
//                                give the attention layers
//     low_rank                   true: decays and output gates are projected from vectors as wide as a head: in modules
//                                state_a_narrow and state_z_narrow, then state_a_wide and state_z_wide
//     beside_attention           true: every layer has attention and a recurrence
//     alone                      true: no layer has attention
//     unit_norms                 true: Mamba 1's steps, keys and queries are normed without weights
//     one_branch                 true: a layer has attention, a recurrence or an mlp; layer_pattern may list them
//     by_key_head                true: q, k, v and z are one module and b and a another, grouped by key head
//     tiled_heads, negative_rates    true: see Recurrence (GGUF files)
//     norm_eps                   of the norms of outputs, if it is not the model's
//   state_gate, state_in_gate    (in modules) rg_lru: the tensors NAME_weight and NAME_bias are the gates of decays and
//                                of values
//   recurrent_norm, recurrent_mlp_norm    (in modules) norms before the branches of recurrent layers, which then lack
//                                attention_norm, attention_out_norm and mlp_out_norm
//   state_q, state_k, state_v    (in modules) matrices in place of state_qkv. A second "{}" in the name of state_conv
//                                stands for q, k and v, which then have a tensor each
//
//   blocks                       Zamba: attention and an mlp before a recurrence (the layer type hybrid) are a block
//                                that reads the embedding, too. `count` blocks (FIELD) are used in turn; the file has
//                                them in the layers of their first use. block, recurrence, layer: prefixes of names;
//                                names with the second become names with the third. changes: modules with low-rank
//                                changes of each use ("{}" in the key) -> modules that they change
//   block_out                    (in modules) the last matrix of a block
//
// Other parts:
//   mtp_...                      (in modules) the MTP layer, read only for speculation
//   altup_...                    (in modules) AltUp, see AltupConfig: altup_in and altup_out of the model, the others
//                                of each layer
//   layer_gate                   (in modules) per-layer embeddings, see LayerInputConfig
//   layer_scalar                 (in modules) a factor of the residual stream behind each layer
//   laurel_left                  (in modules) LAuReL: a low-rank branch beside attention,
//                                laurel_norm(laurel_right(laurel_left(x)))
//   gate_sparsity                FIELD with the fraction of each layer's gate outputs to set to zero
struct FamilyText {
  std::string_view name;  // of the file, without .json
  std::string_view json;
};

std::span<const FamilyText> family_texts();

// configs/common_fields.json: fields of config.json without effect on the logits of any family (ignored), and fields
// that may have one value only (fixed).
std::string_view common_fields_text();

// configs/config_fields.json: the fields that transformers reads from each family's config.json, without those that
// have no effect on the logits. Written by tools/reference/config_fields.py.
std::string_view config_fields_text();

// configs/beginnings.json: texts that a model continues to calibrate itself (apps/model/open.cpp). Any change
// changes calibrated weights.
std::string_view beginnings_text();

// configs/gguf.json: how GGUF files differ from the folders of the same models. NAME is a key of the metadata without
// the architecture, TENSOR the name of a tensor.
//   fields          field of config.json -> NAME, for all architectures; or a formula, see value_of in
//                   loader/gguf/gguf_config.cpp
//   rows            field of config.json -> TENSOR with that number of rows, if the file has it
//   config          fields of config.json that the metadata may lack; llama.cpp's defaults
//   required        lists of NAMEs of which a file must have one
//   fixed           NAMEs that may have one value only
//   ignored         NAMEs without effect on the logits
//   rope_scaling    NAME -> field of config.json's rope_scaling; sampling: key -> field of generation_config.json
//   description     differences of every family's description
//   architectures   by general.architecture; ARCHITECTURE:experts has experts, ARCHITECTURE:windows a sliding window,
//                   ARCHITECTURE:nope a false rope.scaling.finetuned, ARCHITECTURE:corrected a router with corrections
//     config        fields of config.json that the metadata lack: architectures, model_type ...
//     fields, required, fixed, ignored    as above, for this architecture. If rope.dimension_count is ignored, whole
//                   heads are rotated, or as many elements as a field says
//     fields_by_layers    fields for models with so many layers
//     rope_scaling  entries of that object that the metadata may lack
//     flags         field of config.json -> TENSOR that is present, or !TENSOR that is absent, if the field is true
//     layer_types   the list `key` gives layer_types: names[0] where it is true or above 0, else names[1]; `absent` for
//                   all layers without the list; `others`: {NAME: the type of layers where that list is above 0}
//     description   differences of the family's description; modules that the family has not are left out
std::string_view gguf_text();

// configs/gguf_pretokenizers.json: by the name in a GGUF file (tokenizer.ggml.pre), what the tokenizer.json of its
// models holds beside vocabulary and merges.
std::string_view gguf_pretokenizers_text();

// configs/quantization.json: fields and their supported values, in a quantization_config by method (`ignored`: without
// effect; `notes`: of the tools on their work) and in a LoRA adapter's adapter_config.json ([]: any value).
std::string_view quantization_text();

// configs/regex_sets.json: sets of characters by name, as members of a class of PCRE2; ^ before them: all others.
//   posix         [:name:] in a class. All are spelled out, since releases of PCRE2 differ
//   categories    names of \p{name} that PCRE2 and `posix` lack, without case, blanks, - and _
std::string_view regex_sets_text();

// configs/string_formats.json: patterns of strings of JSON schemas.
//   patterns      of formats, where XGrammar's are too loose: RFC 3339 (dates respect the length of months and leap
//                 years, times have no leap seconds), RFC 6901
//   automata      the same, for automata only: email is RFC 5321 without quotes, which XGrammar's pattern has and its
//                 automata do not
//   stricter      patterns of Zod that no automaton here expresses (assertions, too many states, Unicode), and stricter
//                 ones
std::string_view string_formats_text();

// configs/tokenizers.json: data that the files of tokenizers do not repeat.
//   patterns          of components of tokenizer.json by their type, and of Llama 3's list of ranks. ByteLevel has
//                     GPT-2's. Whitespace has the \w of a Rust library, which counts joiners as word characters
//                     (Unicode's UTS 18). Punctuation has the characters of Unicode 8, so younger ones are excluded
//   special_tokens    of Llama 3's list of ranks, before numbered names, and of tekken.json up to version v7, if it
//                     lists none
std::string_view tokenizers_text();

// configs/tool_formats.json: the formats in which model families write tool calls, see ToolFormatRow, whose members
// have the names of the fields. An absent field is empty. A chat template has the first format of which it contains all
// texts of one list in `templates`, so more specific texts come first. A row without a body is a format that is not
// supported.
//   tags          the members of XmlTags in their order
//   force         force_before and force_after
std::string_view tool_formats_text();

}  // namespace pinion
