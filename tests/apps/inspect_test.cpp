// pinion inspect: the description of folders.
#include "tests/apps/program.h"

namespace pinion {
namespace {

TEST(Inspect, FolderIsDescribedWithoutPacking) {
  const json report = run_json({"inspect", "--model", kStories, "--json"});
  EXPECT_EQ(report["family"], "llama");
  EXPECT_EQ(report["parameters"], 260032);
  EXPECT_EQ(report["context"], 512);
  EXPECT_EQ(report["memory_bytes"]["embedding_mapped"], 512 * 64 * 2);
  EXPECT_EQ(report["fits"]["weights"], true);
  EXPECT_EQ(report["fits"]["positions"], 512);
  EXPECT_NE(report["fits"]["available"].get<std::string>().find(" MB "), std::string::npos);
  EXPECT_EQ(report["run"]["quant"], "w8a8");
  const json kept = run_json({"inspect", "--model", kStories, "--keep", "lm_head", "--json"});
  EXPECT_GT(kept["memory_bytes"]["head"], report["memory_bytes"]["head"]);
  EXPECT_NE(run_pinion({"inspect", "--model", kStories}).out.find("family: llama"), std::string::npos);
  EXPECT_EQ(report["rope_theta"], 10000.0);
  EXPECT_GT(report["rms_norm_eps"], 0.0);
  EXPECT_EQ(report["tensors"], 2 + 5 * 9);
  EXPECT_GT(report["tensor_bytes"], 2 * 260032 - 1);
  EXPECT_EQ(report["tokenizer_file"], "tokenizer.json");
  EXPECT_EQ(report["chat_template"], false);
  EXPECT_EQ(report["ignored_fields"], json::array());
  EXPECT_EQ(report["generation"]["temperature"], 0.0);
  EXPECT_EQ(report["generation"]["dry_multiplier"], 0.0);
  EXPECT_GT(report["memory_bytes"]["available"], 0);
  const std::string text = run_pinion({"inspect", "--model", kDemo, "--json"}).out;
  EXPECT_NE(text.find("\"temperature\":0.6,"), std::string::npos) << "as in the file, not as a double of a float";
  EXPECT_NE(text.find("\"rms_norm_eps\":1e-06,"), std::string::npos) << text;
  const json demo = json::parse(text, nullptr, false);
  EXPECT_EQ(demo["chat_template"], true);
  EXPECT_EQ(demo["generation"]["eos_ids"], (json{2, 6}));
  const json window = run_json({"inspect", "--model", PINION_TEST_DATA "/families/mistral_window", "--json"});
  EXPECT_GT(window["sliding_window"], 0);
  expect_failure(run_pinion({"inspect", "--model", "/nonexistent"}), 1, "no such folder");
}

// Embedding tables are mapped, and layers that read the KV cache of other layers have none of their own.
TEST(Inspect, LayerEmbeddingsAndSharedCaches) {
  const std::string folder = PINION_TEST_DATA "/families/gemma3n";
  const json report = run_json({"inspect", "--model", folder, "--kv", "f32", "--json"});
  EXPECT_EQ(report["memory_bytes"]["layer_embeddings_mapped"], 120 * 5 * 12 * 2);
  EXPECT_EQ(report["parameters"].get<int64_t>() - report["active_parameters"].get<int64_t>(), 120 * 5 * 12);
  EXPECT_EQ(report["memory_bytes"]["kv_per_1024_positions"], 1024 * 3 * 2 * 2 * 16 * 4) << "3 of 5 layers";
  EXPECT_EQ(report["matrices"]["floats_to_codes"], 3 * 11 + 2 * 9 + 7 + 1)
      << "with those beside the layers, and the head";
}

TEST(Inspect, MatricesWithKeptCodesAreCounted) {
  const std::string coded = PINION_TEST_DATA "/families/llama_codes";
  const json report = run_json({"inspect", "--model", coded, "--json"});
  EXPECT_EQ(report["quantised_file"], true);
  EXPECT_EQ(report["matrices"]["codes_kept"], 12);
  EXPECT_EQ(report["matrices"]["floats_to_codes"], 3);
  EXPECT_EQ(report["matrices"]["without_codes"], json::parse(R"({"lm_head": 1, "model.layers.{}.self_attn.o_proj": 1,
                                                               "model.layers.{}.mlp.down_proj": 1})"));
  const json none = run_json({"inspect", "--model", coded, "--quant", "none", "--json"});
  EXPECT_EQ(none["matrices"]["codes_to_bf16"], 12);
  EXPECT_EQ(none["matrices"]["floats_to_bf16"], 3);
  EXPECT_EQ(none["parameters"], report["parameters"]);
  const json plain = run_json({"inspect", "--model", kStories, "--json"});
  EXPECT_EQ(plain["quantised_file"], false);
  EXPECT_EQ(plain["matrices"]["floats_to_codes"], 36);  // seven in each of five layers, and the head
  EXPECT_FALSE(plain["matrices"].contains("without_codes"));
}

TEST(Inspect, TernaryMatricesAreCounted) {
  const std::string ternary = PINION_TEST_DATA "/families/qwen3_ternary";
  const json report = run_json({"inspect", "--model", ternary, "--json"});
  EXPECT_EQ(report["matrices"]["ternary_to_w2"], 2 * 7 - 1);
  EXPECT_EQ(report["matrices"]["floats_to_codes"], 2);
  const json none = run_json({"inspect", "--model", ternary, "--quant", "none", "--json"});
  EXPECT_FALSE(none["matrices"].contains("ternary_to_w2"));
  EXPECT_LT(report["memory_bytes"]["layers"], none["memory_bytes"]["layers"]);
}

TEST(Inspect, FormatOfRequantisedCodesIsNamed) {
  const std::string families = PINION_TEST_DATA "/families/";
  const json awq = run_json({"inspect", "--model", families + "phi3_awq", "--quant", "w8a8", "--json"});
  EXPECT_EQ(awq["stored_as"], json::parse(R"(["AWQ, 4 bits, groups of 4"])"));
  EXPECT_EQ(awq["matrices"]["codes_kept"], 0);
  EXPECT_EQ(awq["matrices"]["codes_to_codes"], 2 * 7);
  EXPECT_EQ(awq["matrices"]["floats_to_codes"], 1);
  // Parameters are numbers of the model, not words of the file: the same as without codes.
  const json plain = run_json({"inspect", "--model", families + "phi3", "--json"});
  EXPECT_EQ(awq["parameters"], plain["parameters"]);
  EXPECT_TRUE(plain["stored_as"].is_null());
  const json blocks = run_json({"inspect", "--model", families + "qwen3_moe_fp8_blocks", "--json"});
  EXPECT_EQ(blocks["stored_as"], json::parse(R"(["FP8 E4M3, blocks of 16 x 24"])"));
}

TEST(Inspect, FileOfFourBitCodesRunsInFourBits) {
  const std::string families = PINION_TEST_DATA "/families/";
  const auto inspect = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"inspect", "--json", "--model"});
    return run_json(arguments);
  };
  const json gptq = inspect({families + "llama_gptq"});
  EXPECT_EQ(gptq["run"]["quant"], "w4a8");
  EXPECT_EQ(gptq["run"]["why_quant"], "the file has 4 bits");
  EXPECT_EQ(gptq["stored_as"], json::parse(R"(["GPTQ, 4 bits, groups of 32"])"));
  EXPECT_EQ(gptq["matrices"]["codes_kept"], 2 * 7);
  EXPECT_EQ(gptq["matrices"]["floats_to_codes"], 1) << "the head";
  EXPECT_FALSE(gptq["matrices"].contains("why_not_kept"));
  const json bytes = inspect({families + "qwen2_w4a8"});
  EXPECT_EQ(bytes["run"]["quant"], "w4a8");
  EXPECT_EQ(bytes["stored_as"], json::parse(R"(["int-quantized, 4 bits with zeros, groups of 32"])"));
  EXPECT_EQ(bytes["matrices"]["codes_kept"], 2 * 7);
  const json w8 = inspect({families + "llama_gptq", "--quant", "w8a8"});
  EXPECT_EQ(w8["run"]["quant"], "w8a8");
  EXPECT_EQ(w8["run"]["why_quant"], "as asked");
  EXPECT_EQ(w8["matrices"]["codes_to_codes"], 2 * 7);
  EXPECT_LT(gptq["memory_bytes"]["layers"], w8["memory_bytes"]["layers"]);
  const json narrow = inspect({families + "mixtral_awq", "--quant", "w4a8"});
  EXPECT_EQ(narrow["matrices"]["codes_to_w4"], 2 * (4 + 3 * 5));
  EXPECT_EQ(narrow["matrices"]["why_not_kept"], json::parse(R"(["groups that are no multiple of 32"])"));
  const json experts = inspect({families + "gpt_oss_mxfp4"});
  EXPECT_EQ(experts["run"]["why_quant"], gptq["run"]["why_quant"]);
  EXPECT_EQ(experts["matrices"]["codes_kept"], 24);
  for (const char* other : {"mixtral_awq", "llama_gptq_order", "qwen3_5_beside_vision_packed", "qwen3_codes"}) {
    const json report = inspect({families + other});
    EXPECT_EQ(report["run"]["quant"], "w8a8") << other << ": 8 bits, no integers, or none that stay";
    EXPECT_EQ(report["run"]["why_quant"], "default");
  }
}

TEST(Inspect, FourBits) {
  const auto inspect = [](std::vector<std::string> options) {
    std::vector<std::string> arguments = {"inspect", "--model", kStories, "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_json(arguments);
  };
  const json w8 = inspect({"--quant", "w8a8"}), w4 = inspect({"--quant", "w4a8"});
  EXPECT_EQ(w4["matrices"]["floats_to_w4"], 34);
  EXPECT_EQ(w4["matrices"]["floats_to_codes"], 2) << "the head, and v of the first layer";
  EXPECT_EQ(w4["memory_bytes"]["head"], w8["memory_bytes"]["head"]);
  EXPECT_LT(w4["memory_bytes"]["layers"].get<double>(), 0.6 * w8["memory_bytes"]["layers"].get<double>());
  const json head = inspect({"--quant", "w4a8", "--head", "w4", "--keep", "k_proj"});
  EXPECT_EQ(head["matrices"]["floats_to_w4"], 30);
  EXPECT_EQ(head["matrices"]["floats_to_bf16"], 5);
  EXPECT_EQ(head["memory_bytes"]["head"], 8 * 2 * (1024 + 128) + 512 * 4);
  const json none = inspect({"--head", "none"});
  EXPECT_GT(none["memory_bytes"]["head"], w8["memory_bytes"]["head"]);
  EXPECT_EQ(inspect({"--head", "none", "--keep", "lm_head"})["memory_bytes"]["head"], none["memory_bytes"]["head"]);
  const std::vector<std::string> contradiction = {"inspect", "--model", kStories, "--head", "w8", "--keep", "lm_head"};
  expect_failure(run_pinion(contradiction), 1, "lm_head.weight: kept by the pattern");
}

// Mode none holds bf16, also of files with wider numbers.
TEST(Inspect, MatricesRoundedToBf16) {
  const auto matrices = [](const char* folder) {
    return run_json({"inspect", "--model", std::string(PINION_TEST_DATA "/families/") + folder, "--quant", "none",
                     "--json"})["matrices"];
  };
  const json wide = matrices("llama_f16"), exact = matrices("llama");
  EXPECT_GT(wide["rounded_to_bf16"], 0);
  EXPECT_EQ(wide["rounded_to_bf16"], wide["floats_to_bf16"]);
  EXPECT_EQ(exact["rounded_to_bf16"], 0);
}

TEST(Inspect, Adapters) {
  const std::string adapter = PINION_TEST_DATA "/lora/llama=0.5", folder = PINION_TEST_DATA "/families/llama";
  const auto inspect = [&](const std::string& lora) {
    return run_pinion({"inspect", "--model", folder, "--lora", lora, "--json"});
  };
  const json report = json::parse(inspect(adapter).out, nullptr, false);
  EXPECT_EQ(report["run"]["lora"], json::array({adapter}));
  expect_failure(inspect(PINION_TEST_DATA "/lora/phi3"), 1, "o_proj.lora_A.0: shape differs");
  expect_failure(run_pinion({"bench", "--synthetic", folder + "/config.json", "--lora", adapter}), 1,
                 "take no adapters");
}

TEST(Inspect, ActiveParametersOfExperts) {
  const std::string mixed = PINION_TEST_DATA "/families/qwen3_moe_mixed";
  const json report = run_json({"inspect", "--model", mixed, "--json"});
  EXPECT_EQ(report["experts"], json::parse(R"({"count": 5, "per_token": 2, "intermediate_size": 20, "layers": 1})"));
  EXPECT_EQ(report["parameters"].get<int64_t>() - report["active_parameters"].get<int64_t>(), 3 * 3 * 20 * 36);
  const json coded = run_json({"inspect", "--model", PINION_TEST_DATA "/families/qwen3_moe_codes", "--json"});
  EXPECT_EQ(coded["active_parameters"], coded["parameters"]) << "every token takes every expert";
  EXPECT_EQ(coded["matrices"]["codes_kept"], 2 * (4 + 3 * 4));
  EXPECT_EQ(coded["matrices"]["floats_to_bf16"], 2) << "routers";
  EXPECT_EQ(coded["matrices"]["without_codes"], json::parse(R"({"lm_head": 1, "model.layers.{}.mlp.gate": 2})"));
  const json dense = run_json({"inspect", "--model", kStories, "--json"});
  EXPECT_TRUE(dense["experts"].is_null());
  EXPECT_EQ(dense["active_parameters"], dense["parameters"]);
}

// 2 layers of 5 experts, in one tensor for gate and up and one for down; the head is a matrix of its own.
TEST(Inspect, StackedExpertsAreCounted) {
  const json plain = run_json({"inspect", "--model", PINION_TEST_DATA "/families/granite_moe", "--json"});
  EXPECT_EQ(plain["matrices"]["floats_to_codes"], 2 * (4 + 3 * 5) + 1);
  EXPECT_EQ(plain["matrices"]["floats_to_bf16"], 2) << "routers";
  const json shared = run_json({"inspect", "--model", PINION_TEST_DATA "/families/granite_moe_shared", "--json"});
  EXPECT_EQ(shared["matrices"]["floats_to_codes"], 2 * (4 + 3 + 3 * 5) + 1);
  EXPECT_EQ(shared["experts"]["shared_intermediate_size"], 28);
}

// 2 layers with one norm for both branches and biases everywhere, including the head; q, k and v of one tensor are
// three matrices.
TEST(Inspect, ParallelBranchesAreCounted) {
  const json phi = run_json({"inspect", "--model", PINION_TEST_DATA "/families/phi", "--json"});
  const int64_t biases = 4 * 40 + 76 + 40, norm = 2 * 40;
  EXPECT_EQ(phi["parameters"], 2 * 120 * 40 + 120 + norm + 2 * (4 * 40 * 40 + 2 * 76 * 40 + biases + norm));
  EXPECT_EQ(phi["memory_bytes"]["vectors"], 4 * (120 + norm + 2 * (biases + norm)));
  EXPECT_EQ(phi["layer_norm_eps"], 1e-05);
  const json neox = run_json({"inspect", "--model", PINION_TEST_DATA "/families/gpt_neox", "--json"});
  EXPECT_EQ(neox["matrices"]["floats_to_codes"], 2 * 6 + 1);
}

// 2 layers of 4 experts with 3 matrices each; parameters count numbers, not bytes.
TEST(Inspect, FourBitExpertsAreCounted) {
  const std::string model = PINION_TEST_DATA "/families/gpt_oss_mxfp4";
  const json report = run_json({"inspect", "--model", model, "--quant", "w8a8", "--json"});
  EXPECT_EQ(report["quantised_file"], true);
  EXPECT_EQ(report["matrices"]["codes_to_codes"], 24);
  EXPECT_EQ(report["matrices"]["floats_to_codes"], 2 * 4 + 1);
  const int64_t attention = 2 * 64 * 64 + 2 * 64 * 32 + 64 + 2 * 32 + 64 + 4, router = 4 * 64 + 4;
  const int64_t experts = 4 * (3 * 64 * 32 + 2 * 32 + 64);
  EXPECT_EQ(report["parameters"], 2 * 120 * 64 + 64 + 2 * (attention + router + experts + 2 * 64));
  EXPECT_EQ(report["parameters"].get<int64_t>() - report["active_parameters"].get<int64_t>(),
            2 * (3 * 64 * 32 + 2 * 32 + 64));
  const json none = run_json({"inspect", "--model", model, "--quant", "none", "--json"});
  EXPECT_EQ(none["matrices"]["codes_to_bf16"], 24);
  EXPECT_EQ(none["parameters"], report["parameters"]);
  const json plain = run_json({"inspect", "--model", PINION_TEST_DATA "/families/gpt_oss", "--json"});
  EXPECT_EQ(plain["quantised_file"], false);
  EXPECT_EQ(plain["matrices"]["floats_to_codes"], 2 * (4 + 3 * 5) + 1);

  const Folder folder;
  const auto logits = [&](const char* quant) {
    return run_pinion(
        {"logits", "--model", model, "--prompt-ids", "5,6", "--quant", quant, "--out", folder / "logits.npy"});
  };
  EXPECT_NE(logits("w8a8").err.find("MXFP4 become int8, rounded a second time"), std::string::npos);
  EXPECT_EQ(logits("none").err.find("MXFP4"), std::string::npos);
}

// Two of three layers are recurrent: a longer context adds reads of the third one's KV cache only.
TEST(Inspect, RecurrentStateIsNotKvCache) {
  const std::string model = PINION_TEST_DATA "/families/qwen3_5_beside_vision";
  const json report = run_json({"inspect", "--model", model, "--json"});
  EXPECT_EQ(report["recurrent_layers"], 2);
  const int64_t state = 2 * 4 * (4 * 96 + 2 * 12 * 32),
                kv = 2 * 2 * (16 + 4);  // of a position: K and V of two heads with 16 codes and a scale
  EXPECT_EQ(report["memory_bytes"]["recurrent_state"], state);
  EXPECT_EQ(report["memory_bytes"]["kv_per_1024_positions"], 1024 * kv + 4 * 2 * 64) << "a centre for each head of 256";
  const json alone = run_json({"inspect", "--model", PINION_TEST_DATA "/families/qwen3_5", "--json"});
  EXPECT_EQ(report["parameters"], alone["parameters"]) << "without the vision tower";

  const json records =
      run_json({"bench", "--model", model, "-p", "16", "-n", "4", "-r", "2", "-t", "1", "-d", "0,32", "-o", "json"});
  ASSERT_EQ(records.size(), 4u);  // pp16, tg4, both at 32
  const double first = records[1]["bytes_per_token"], later = records[3]["bytes_per_token"];
  constexpr int64_t kLow = 64 * 64 / 2;  // low halves of the head, padded
  EXPECT_EQ(first, records[1]["model_bytes"].get<double>() - kLow + 2 * state + 3 * kv);
  EXPECT_EQ(later - first, 32 * kv);
  EXPECT_EQ(run_json({"inspect", "--model", kStories, "--json"})["memory_bytes"]["recurrent_state"], 0);
}

}  // namespace
}  // namespace pinion
