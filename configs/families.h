// The data of configs/ that is built into the program, as the files' own text.
#pragma once

#include <span>
#include <string_view>

namespace pinion {

// A model family: one file of configs/models. loader/model_config.cpp reads it.
//   architectures, model_types   which config.json is of this family
//   defaults                     fields that a config.json may lack
//   fixed, ignored               fields that must have one value, and that no arithmetic depends on; the lists of
//                                common_fields.json are for all families
//   modules                      tensor names, see ModuleNames: a norm that is not there is not computed, and an mlp
//                                without a gate is activation(up x)
//   qkv_bias, o_bias, mlp_bias   true, false, or the field that says it
//   qk_norm                      none, heads, rotated_heads, all_heads, own_heads
//   windows                      none, all, from_layer, pattern, pattern_after_first, without_rope
// and only where the family needs them
//   older_fields                 names that fields of config.json had before, and theirs now
//   intermediate_size            the field that holds it, where that has another name
//   intermediate_sizes           true: that may be a list of one for each layer
//   adjusts_intermediate_size    true: block_auto_adjust_ff_dim and others say what it becomes (LFM2)
//   rope_theta, partial_rotary_factor     the fields that hold them, where these have other names
//   parallel_branches            true, or the field that says it: attention and mlp read the same stream, and x becomes
//                                x + attention + mlp. parallel_mlp_norm (of modules): the mlp's norm then, where it is
//                                another; it may be attention's
//   qkv_by_head                  true: q, k and v are one module, in which each head has its rows of q, of k and of v
//   head_bias                    true: the head has one
//   rope                         false: no layer has one
//   rope_if                      field, is: without that text in that field no layer has a rope
//   activation                   the field that names it, else hidden_act
//   activations_meant            names of activations that mean others here
//   activation_limit             the field with the limit of a clamped_swiglu, which hidden_act then is a part of
//   experts                      may_be_none: true where num_local_experts may be 0; layers: which have them, all,
//                                sparse_step (Qwen's rule), but_first (by first_k_dense_replace, or the field that
//                                `without` names), types_or_but_first (by mlp_layer_types, where that is) or by_type
//                                (those that layer_types calls moe); count, per_token: the fields, where they have
//                                other names; size: the field with their intermediate size; normalised: the one that
//                                says whether the chosen ones' weights add up to 1, which they do without; router_bias:
//                                true; fused: true where a layer's share their tensors
//                                (loader/checkpoint/fused_experts.h); stacked: true where these are NAME.weight
//                                [experts, 2 size, hidden], gate's rows before up's, and [experts, hidden, size].
//                                modules then has router and expert_gate, _up, _down. stacked_gate_up, stacked_down (of
//                                modules): tensors of that form without .weight, which some files have instead of
//                                experts one by one. shared_size: the field with the size of a shared expert, which
//                                takes every token; shared_count: the one that says how many experts' size it has;
//                                modules then has shared_gate, _up and _down, and shared_weight where a sigmoid weighs
//                                it; sigmoid: true where scores are sigmoids; scale: the field that they are multiplied
//                                by, and router_correction (of modules) the tensor that is added to them for the choice
//                                alone; groups: experts are chosen of some groups only. count and kept: the fields that
//                                say how many there are and how many are kept; best: how many of a group's scores count
//                                for it; field, is, else: only where that field is the first, and it must be one of the
//                                two
//   layers_behind                the field with how many layers, behind the model's own, are not read
//   qk_norm_if                   the field that says whether there is such a norm
//   value_norm                   true: values are normed, too, without weights
//   shared_kv                    the field with how many layers, the last ones, read keys and values of earlier ones
//   gate_sparsity                the field that says which part of each layer's gates is to be zero
//   laurel_left (of modules)     attention's branch is averaged with laurel_norm of laurel_right of it
//   altup_router (of modules)    the model has several streams, see AltupConfig; altup_in and altup_out are the
//   model's,
//                                the other altup_... each layer's. layer_gate: layers have embeddings of their own, see
//                                LayerInputConfig
//   o_norm, down_norm (of modules)       norms of what o and down multiply
//   sinks (of modules)           a tensor with one more score for each head's softmax, of nothing
//   xielu (of modules)           what holds the numbers of the activation xielu
//   norm, norm_bias, norm_eps    layer: LayerNorm instead of RMSNorm; true: with biases; the field, else rms_norm_eps
//   norm_offset                  what norm weights are stored less by
//   embedding_scale, score_scale, branch_scale, logit_scale      a number, or a field to the power of 1, -1, 0.5 or
//                                -0.5; times: the same of another, by which it is multiplied
//   output_scales                fields with what the outputs of matrices are multiplied by: qkv, key (besides), o,
//                                gate_down (two), state_in, state_parts (five of state_in's: z, x, B, C, dt), state_out
//   latent_attention             true: keys and values are made of a narrow vector, see LatentConfig. modules then has
//                                kv_a, kv_a_norm and kv_b in the place of k and v, and q_a, q_a_norm and q_b for
//                                queries that are made of one, too
//   score_cap, logit_cap         the field that holds it
//   recurrence                   kind: gated_delta, short_conv or mamba2; layer_types: the words that the field of that
//                                name may have, where that is absent full_attn_idxs or full_attention_interval says
//                                which layers attend; beside_attention: true: all layers do both; one_branch: true: a
//                                layer attends, or is recurrent, or has an mlp; layer_pattern says it, too;
//                                by_key_head: true: q, k, v and z are one module, b and a another, in which each key
//                                head has its rows of them
//   mtp_... (of modules)         the layer that predicts one token more, which is read where it drafts
//   attention_gate               true: q_proj holds a gate beside each query
//   rope_of_neighbours           true, or the field that says it: elements 0 and 1 of a head are turned together, then
//                                2 and 3 (GPT-J's rope)
//   rope_where_sliding           layers that see everything have no rope: always, or with_window where sliding_window
//                                is given
//   partial_rotary, ntk_alpha, query_scaling, mrope, ropes_by_layer_type, no_rope_layers
//                                rope settings that other families refuse
//   skipped_tensors, renamed_tensors, skipped_endings      what files hold besides, or under other names, see
//                                TensorSelection
struct FamilyText {
  std::string_view name;  // the file's name without .json
  std::string_view json;
};

std::span<const FamilyText> family_texts();

// configs/common_fields.json: fields of config.json that no family's arithmetic depends on (ignored), and those that
// may have one value only (fixed).
std::string_view common_fields_text();

// configs/config_fields.json: the fields that transformers reads of each family's config.json, written by
// tools/reference/config_fields.py, less those that no arithmetic depends on. Other fields are ignored.
std::string_view config_fields_text();

}  // namespace pinion
