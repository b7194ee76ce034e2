// pinion generate: sources of the prompt, output, ends of the text, and refused folders.
#include <sstream>

#include "tests/apps/program.h"

namespace pinion {
namespace {

std::string numbers(const json& ids) {
  std::string text = ids.dump();
  return text.substr(1, text.size() - 2);
}

TEST(Generate, StoriesEqualReference) {
  const json expected = read_json(kStories + "/expected.json");
  for (const json& story : expected["generations"]) {
    const std::string prompt = story["prompt"];
    const json answer =
        run_json(generate(kStories, {"--prompt", prompt, "--max-tokens", "64", "--quant", "none", "--json"}));
    EXPECT_EQ(answer["prompt_ids"], story["prompt_ids"]);
    EXPECT_EQ(answer["ids"], story["greedy_ids"]);
    EXPECT_EQ(prompt + answer["text"].get<std::string>(), story["full_text"].get<std::string>());
    EXPECT_EQ(answer["finish_reason"], "length");
  }
}

// The vocabulary omits the space at the beginning of a text, but an answer continues a text.
TEST(Generate, ContinuationKeepsLeadingSpace) {
  const std::string prompt = "Once upon a time, there was";
  const std::vector<std::string> few = {"--max-tokens", "4", "--json"};
  const auto with = [&](std::vector<std::string> options) {
    options.insert(options.end(), few.begin(), few.end());
    return generate(kStories, options);
  };
  const json answer = run_json(with({"--prompt", prompt}));
  const std::string text = answer["text"];
  EXPECT_TRUE(text.starts_with(" a")) << text;
  json ids = answer["prompt_ids"];
  for (const json& id : answer["ids"]) ids.push_back(id);
  const Outcome whole = run_pinion({"detokenize", "--model", kStories, "--ids", numbers(ids)});
  EXPECT_EQ(whole.out, prompt + text + "\n") << whole.err;
  EXPECT_TRUE(run_json(with({"--prompt-ids", "1"}))["text"].get<std::string>().starts_with("Once"));
}

TEST(Generate, JsonHasAllFigures) {
  const json answer = run_json(generate(kStories, {"--prompt", "Once upon a time", "--max-tokens", "8", "--json"}));
  for (const char* field : {"prompt_tokens_per_second", "decode_tokens_per_second", "load_seconds", "peak_rss_bytes",
                            "bytes_per_token", "regions_per_token", "barriers_per_token", "threads", "seed"}) {
    EXPECT_TRUE(answer["stats"][field].is_number()) << field;
  }
  EXPECT_EQ(answer["stats"]["regions_per_token"], 1.0);
  EXPECT_EQ(answer["stats"]["quant"], "w8a8");
  EXPECT_EQ(answer["stats"]["kv"], "q8");
  EXPECT_EQ(answer["stats"]["prompt_tokens"], answer["prompt_ids"].size());
}

TEST(Generate, TextIsStreamedFiguresGoToStderr) {
  const std::vector<std::string> options = {"--prompt", "Once upon a time", "--max-tokens", "20"};
  const Outcome plain = run_pinion(generate(kStories, options));
  EXPECT_EQ(plain.status, 0) << plain.err;
  std::vector<std::string> with_json = options;
  with_json.push_back("--json");
  const json answer = run_json(generate(kStories, with_json));
  EXPECT_EQ(plain.out, answer["text"].get<std::string>() + "\n");
  EXPECT_NE(plain.err.find("tokens at"), std::string::npos) << plain.err;
}

TEST(Generate, PromptHasFourSources) {
  const Folder folder;
  write_file(folder / "prompt", "Once upon a time\n");
  const std::vector<std::string> rest = {"--max-tokens", "12", "--json"};
  const auto answer = [&](std::vector<std::string> options, const std::string& input) {
    options.insert(options.end(), rest.begin(), rest.end());
    return run_json(generate(kStories, options), input);
  };
  const json by_text = answer({"--prompt", "Once upon a time"}, "");
  const json by_file = answer({"--prompt-file", folder / "prompt"}, "");
  const json by_input = answer({}, "Once upon a time\n");
  const json by_ids = answer({"--prompt-ids", numbers(by_text["prompt_ids"])}, "");
  for (const json& other : {by_file, by_input, by_ids}) {
    EXPECT_EQ(other["prompt_ids"], by_text["prompt_ids"]);
    EXPECT_EQ(other["ids"], by_text["ids"]);
    EXPECT_EQ(other["text"], by_text["text"]);
  }
}

TEST(Generate, PromptIdsNeedNoTokenizer) {
  const Folder folder;
  copy_stories(folder);
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"}) {
    fs::remove(folder.path / name);
  }
  const std::vector<std::string> options = {"--prompt-ids", "1,403,407", "--max-tokens", "5"};
  std::vector<std::string> with_json = options;
  with_json.push_back("--json");
  const json answer = run_json(generate(folder.path, with_json));
  EXPECT_TRUE(answer["text"].is_null());
  EXPECT_EQ(run_pinion(generate(folder.path, options)).out, numbers(answer["ids"]) + "\n");
  expect_failure(run_pinion(generate(folder.path, {"--prompt", "Hi"})), 1, "tokenizer");
}

TEST(Generate, SameSeedGivesSameText) {
  const auto ids = [](const std::string& seed) {
    return run_json(generate(
        kStories, {"--prompt", "Once", "--temperature", "1.2", "--seed", seed, "--max-tokens", "24", "--json"}))["ids"];
  };
  EXPECT_EQ(ids("7"), ids("7"));
  EXPECT_NE(ids("7"), ids("8"));
}

TEST(Generate, GenerationConfigSetsDefaults) {
  const Folder folder;
  copy_stories(folder);
  write_file(folder / "generation_config.json", R"({"do_sample": true, "temperature": 0.75, "top_k": 20})");
  const json sampled = run_json(generate(folder.path, {"--prompt", "Once", "--max-tokens", "4", "--json"}));
  EXPECT_NEAR(sampled["stats"]["temperature"].get<double>(), 0.75, 1e-6);
  const json greedy =
      run_json(generate(folder.path, {"--prompt", "Once", "--max-tokens", "4", "--temperature", "0", "--json"}));
  EXPECT_EQ(greedy["stats"]["temperature"], 0.0);
}

TEST(Generate, FullContextStops) {
  const Folder folder;
  copy_stories(folder);
  json config = read_json(folder / "config.json");
  config["max_position_embeddings"] = 32;
  write_file(folder / "config.json", config.dump());
  const json answer = run_json(
      generate(folder.path, {"--prompt-ids", "1,403,407,261", "--max-tokens", "100", "--ignore-eos", "--json"}));
  EXPECT_EQ(answer["finish_reason"], "context");
  EXPECT_EQ(answer["ids"].size(), 32 - 4 + 1);  // the last token is not evaluated
  const json unlimited =
      run_json(generate(folder.path, {"--prompt-ids", "1,403,407,261", "-n", "-1", "--ignore-eos", "--json"}));
  EXPECT_EQ(unlimited["ids"], answer["ids"]);
  const Outcome text =
      run_pinion(generate(folder.path, {"--prompt-ids", "1,403,407,261", "--max-tokens", "100", "--ignore-eos"}));
  EXPECT_NE(text.err.find("the context of 32 tokens is full"), std::string::npos) << text.err;

  std::string ids = "1";
  for (int i = 0; i < 40; ++i) ids += ",403";
  const Outcome outcome = run_pinion(generate(folder.path, {"--prompt-ids", ids}));
  expect_failure(outcome, 1, "32");
  EXPECT_NE(outcome.err.find("41"), std::string::npos) << outcome.err;
}

TEST(Generate, EndOfSequenceStops) {
  const Folder folder;
  copy_stories(folder);
  const json free_run = run_json(generate(kStories, {"--prompt", "Once", "--max-tokens", "6", "--json"}));
  write_file(folder / "generation_config.json", json{{"eos_token_id", free_run["ids"][3]}}.dump());
  const json stopped = run_json(generate(folder.path, {"--prompt", "Once", "--max-tokens", "6", "--json"}));
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_LE(stopped["ids"].size(), 3u);
  const json ignored =
      run_json(generate(folder.path, {"--prompt", "Once", "--max-tokens", "6", "--ignore-eos", "--json"}));
  EXPECT_EQ(ignored["ids"], free_run["ids"]);
}

TEST(Generate, TextEndsBeforeStopText) {
  const std::vector<std::string> options = {"--prompt", "Once upon a time", "--max-tokens", "60"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), options.begin(), options.end());
    return generate(kStories, more);
  };
  const std::string whole = run_json(with({"--json"}))["text"];
  // The stop text may begin and end within tokens.
  for (size_t at = 10; at + 5 < whole.size(); at += 7) {
    const std::string stop = whole.substr(at, 5);
    const std::string before = whole.substr(0, whole.find(stop));
    EXPECT_EQ(run_pinion(with({"--stop", "never said", "--stop", stop})).out, before + "\n") << stop;
    if (at > 30) break;
  }
  const std::string stop = whole.substr(whole.size() / 2, 8);
  const json answer = run_json(with({"--json", "--stop", stop}));
  EXPECT_EQ(answer["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_LT(answer["ids"].size(), 60u);
  expect_failure(run_pinion(with({"--stop", ""})), 2, "--stop");
}

TEST(Generate, LogprobsOfPromptAndText) {
  const std::vector<std::string> options = {"--prompt", "Once upon a time", "--max-tokens", "6", "--json"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), options.begin(), options.end());
    return run_json(generate(kStories, more));
  };
  const json plain = with({}), answer = with({"--logprobs", "2"});
  EXPECT_FALSE(plain.contains("logprobs"));
  EXPECT_EQ(answer["ids"], plain["ids"]);
  EXPECT_EQ(answer["stats"]["logits_hash"], plain["stats"]["logits_hash"]);
  ASSERT_EQ(answer["logprobs"].size(), 6u);
  ASSERT_EQ(answer["prompt_logprobs"].size(), answer["prompt_ids"].size() - 1);
  for (size_t i = 0; i < 6; ++i) {
    const json& one = answer["logprobs"][i];
    EXPECT_EQ(one["id"], answer["ids"][i]);
    EXPECT_TRUE(one["token"].is_string());
    ASSERT_EQ(one["top"].size(), 2u);
    EXPECT_EQ(one["top"][0]["id"], one["id"]) << "greedy";
    EXPECT_EQ(one["top"][0]["logprob"], one["logprob"]);
    EXPECT_GE(one["top"][0]["logprob"], one["top"][1]["logprob"]);
    EXPECT_LE(one["logprob"], 0.0);
  }
  EXPECT_EQ(answer["prompt_logprobs"][0]["id"], answer["prompt_ids"][1]);
  for (const char* way : {"1", "2"}) {
    const json other = with({"--logprobs", "2", "--threads", way, "--prefill-chunk", way, "--kernels", "scalar"});
    EXPECT_EQ(other["logprobs"], answer["logprobs"]);
    EXPECT_EQ(other["prompt_logprobs"], answer["prompt_logprobs"]);
  }
  EXPECT_TRUE(with({"--logprobs", "0"})["logprobs"][0]["top"].empty());
  expect_failure(run_pinion(generate(kStories, {"--prompt", "Hi", "--logprobs", "2"})), 2, "--json");
  expect_failure(run_pinion(generate(kStories, {"--prompt", "Hi", "--json", "--logprobs", "1.5"})), 2, "whole number");
}

TEST(Generate, PenaltiesPreventRepetition) {
  const auto ids = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--prompt", "Once upon a time", "--temperature", "0", "--max-tokens", "150",
                               "--ignore-eos", "--json"});
    const json list = run_json(generate(kStories, more))["ids"];
    return list.get<std::vector<int>>();
  };
  const auto longest_repetition = [](const std::vector<int>& list) {
    int64_t longest = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      for (size_t j = i + 1; j < list.size(); ++j) {
        const auto [a, b] =
            std::mismatch(list.begin() + static_cast<int64_t>(j), list.end(), list.begin() + static_cast<int64_t>(i));
        longest = std::max<int64_t>(longest, a - (list.begin() + static_cast<int64_t>(j)));
      }
    }
    return longest;
  };
  const std::vector<int> plain = ids({});
  EXPECT_NE(ids({"--presence-penalty", "0.7"}), plain);
  EXPECT_NE(ids({"--frequency-penalty", "0.7"}), plain);
  const std::vector<int> dry = ids({"--dry-multiplier", "5", "--dry-sequence-breaker", "none"});
  EXPECT_LT(longest_repetition(dry), longest_repetition(plain));
  EXPECT_LE(longest_repetition(dry), 4);
  expect_failure(run_pinion(generate(kStories, {"--prompt", "Hi", "--dry-base", "0.5"})), 2, "--dry-base");
}

TEST(Generate, ManyPromptsEqualSingleRuns) {
  const Folder folder;
  write_file(folder / "prompts.jsonl", R"({"prompt": "Once upon a time"})"
                                       "\n\n"
                                       R"({"prompt_ids": [1, 5, 9], "max_tokens": 7})"
                                       "\n"
                                       R"({"prompt": "Once upon a time, there was"})"
                                       "\n"
                                       R"({"prompt": "Once upon a time"})");
  const std::vector<std::string> same = {"--temperature", "0.9", "--seed", "4", "--stop", "day"};
  const auto with = [&](std::vector<std::string> options) {
    options.insert(options.end(), same.begin(), same.end());
    return generate(kStories, options);
  };
  const json first = run_json(with({"--prompt", "Once upon a time", "--max-tokens", "30", "--json"}));
  const json second = run_json(with({"--prompt-ids", "1,5,9", "--max-tokens", "7", "--json"}));
  const json third = run_json(with({"--prompt", "Once upon a time, there was", "--max-tokens", "30", "--json"}));
  const json alone[] = {first, second, third, first};
  for (const char* parallel : {"1", "3", "100"}) {
    const Outcome outcome =
        run_pinion(with({"--prompts", folder / "prompts.jsonl", "--max-tokens", "30", "--parallel", parallel}));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("4 requests, "), std::string::npos) << outcome.err;
    std::istringstream lines(outcome.out);
    std::string line;
    size_t i = 0;
    for (; std::getline(lines, line); ++i) {
      const json one = json::parse(line);
      ASSERT_LT(i, std::size(alone));
      EXPECT_EQ(one["index"], i);
      for (const char* field : {"prompt_ids", "ids", "text", "finish_reason"}) EXPECT_EQ(one[field], alone[i][field]);
      EXPECT_EQ(one["logits_hash"], alone[i]["stats"]["logits_hash"]) << parallel;
    }
    EXPECT_EQ(i, std::size(alone));
  }
}

TEST(Generate, BadPromptLinesAreNamed) {
  const Folder folder;
  const std::string file = folder / "prompts.jsonl";
  const auto fails_on = [&](const std::string& text, const char* why) {
    write_file(file, text);
    expect_failure(run_pinion(generate(kStories, {"--prompts", file})), 1, why);
  };
  fails_on("{\"prompt\": \"a\"}\nhello\n", "prompts.jsonl, line 2: invalid JSON");
  fails_on("{\"prompt\": 3}", "line 1: prompt: wrong type: want a string, have 3");
  fails_on("{}", "line 1");
  fails_on("{\"prompt\": \"a\", \"prompt_ids\": [1]}", "both prompt and prompt_ids");
  fails_on("{\"prompt_ids\": [1, 512]}", "prompt 1: token id: not in the vocabulary");
  fails_on("{\"prompt_ids\": []}", "prompt 1: prompt: empty");
  fails_on("\n", "no prompts");
  expect_failure(run_pinion(generate(kStories, {"--prompts", file, "--logprobs", "1", "--json"})), 2, "--logprobs");
  expect_failure(run_pinion(generate(kStories, {"--prompts", file, "--speculate", "ngram"})), 2, "--speculate");
  expect_failure(run_pinion(generate(kStories, {"--prompts", folder / "none"})), 1, "none");
}

TEST(Generate, QuietPrintsFailuresOnly) {
  const Folder folder;
  copy_stories(folder);
  json config = read_json(folder / "config.json");
  config["axolotl_config"] = 1;
  write_file(folder / "config.json", config.dump());
  const std::vector<std::string> options = {"--prompt", "Once", "--max-tokens", "4", "--quiet"};
  const Outcome outcome = run_pinion(generate(folder.path, options));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_FALSE(outcome.out.empty());
  expect_failure(run_pinion(generate("/nonexistent", options)), 1, "no such folder");
}

TEST(Generate, InvalidIdsAndEmptyPromptsAreRefused) {
  expect_failure(run_pinion(generate(kStories, {"--prompt-ids", "1,512"})), 1, "512");
  expect_failure(run_pinion(generate(kStories, {"--prompt-ids", ""})), 1, "prompt");
}

TEST(Generate, BadFoldersAreRefused) {
  const std::vector<std::string> options = {"--prompt-ids", "1,2"};
  expect_failure(run_pinion(generate("/nonexistent", options)), 1, "no such folder");
  expect_failure(run_pinion(generate(kStories + "/LICENSE", options)), 1,
                 "a file, where a model's folder was expected");

  const struct {
    std::string file, text, cause;
  } kCases[] = {
      {"config.json", "", "config.json"},
      {"config.json", "{\"architectures\": [\"Nonsense\"]}", "Nonsense"},
      {"config.json", "[1, 2]", "config.json"},
      {"config.json", std::string(100000, '['), "config.json"},
      {"model.safetensors", "", "model.safetensors"},
      {"model.safetensors", std::string(64, '\xff'), "model.safetensors"},
      {"tokenizer.json", "{", "tokenizer.json"},
      {"generation_config.json", "{\"temperature\": \"hot\"}", "temperature"},
  };
  for (const auto& test : kCases) {
    const Folder folder;
    copy_stories(folder);
    write_file(folder / test.file, test.text);
    expect_failure(run_pinion(generate(folder.path, options)), 1, test.cause);
  }
  for (const char* name : {"config.json", "model.safetensors"}) {
    const Folder folder;
    copy_stories(folder);
    fs::remove(folder.path / name);
    expect_failure(run_pinion(generate(folder.path, options)), 1, name);
    fs::create_directory(folder.path / name);
    expect_failure(run_pinion(generate(folder.path, options)), 1, name);
  }
}

TEST(Generate, IgnoredFieldsAreNoted) {
  const Folder folder;
  copy_stories(folder);
  json config = read_json(folder / "config.json");
  config["axolotl_config"] = {{"base_model", "stories"}, {"lora_r", 8}};
  config["note\nof its author"] = "trained on more stories";
  write_file(folder / "config.json", config.dump());
  const std::vector<std::string> options = {"--prompt-ids", "1,2", "--max-tokens", "4"};
  const Outcome outcome = run_pinion(generate(folder.path, options));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, run_pinion(generate(kStories, options)).out);
  const std::string line =
      R"(pinion: fields of config.json are ignored, as transformers ignores them: "axolotl_config", "note\nof its author")";
  EXPECT_EQ(outcome.err.substr(0, outcome.err.find('\n')), line);
  EXPECT_EQ(run_pinion({"inspect", "--model", folder.path}).err, line + "\n");
  const Outcome bench = run_pinion({"bench", "--synthetic", folder / "config.json", "-p", "0", "-n", "1", "-r", "1"});
  EXPECT_NE(bench.err.find(line + "\n"), std::string::npos) << bench.err;
  for (int i = 0; i < 10; ++i) config["x" + std::to_string(i)] = i;
  write_file(folder / "config.json", config.dump());
  const std::string many = run_pinion({"inspect", "--model", folder.path}).err;
  EXPECT_TRUE(many.ends_with("\"x5\" and 4 more\n")) << many;
}

TEST(Generate, TruncatedWeightsAreRefused) {
  const std::string weights = read_file(kStories + "/model.safetensors");
  for (const size_t bytes : {size_t{1}, size_t{8}, size_t{100}, weights.size() / 2, weights.size() - 1}) {
    const Folder folder;
    copy_stories(folder);
    write_file(folder / "model.safetensors", weights.substr(0, bytes));
    expect_failure(run_pinion(generate(folder.path, {"--prompt-ids", "1,2"})), 1, "model.safetensors");
  }
}

TEST(Generate, TextMatchesSchemaOrGrammar) {
  const Folder folder;
  write_file(folder / "schema",
             R"({"type":"object","properties":{"name":{"type":"string","maxLength":20}},"required":["name"]})");
  write_file(folder / "grammar", "root ::= \"yes\" | \"no\"");
  write_file(folder / "bad", "{\"type\": \"strin\"}");
  std::vector<std::string> options = {"--prompt", "Once",   "--json", "--temperature",
                                      "1.3",      "--seed", "3",      "--json-schema"};
  options.push_back(folder / "schema");
  const json drafted = run_json(generate(kStories, options));
  options.insert(options.end(), {"--speculate", "off"});
  const json plain = run_json(generate(kStories, options));
  EXPECT_EQ(drafted["ids"], plain["ids"]);
  EXPECT_EQ(drafted["stats"]["logits_hash"], plain["stats"]["logits_hash"]);
  EXPECT_EQ(drafted["stats"]["speculate"], "ngram");
  EXPECT_EQ(plain["finish_reason"], "stop");
  const json answer = json::parse(plain["text"].get<std::string>(), nullptr, false);
  EXPECT_LE(answer["name"].get<std::string>().size(), 20u) << plain["text"];
  const std::string word = run_pinion(generate(kStories, {"--prompt", "Once", "--grammar", folder / "grammar"})).out;
  EXPECT_TRUE(word == "yes\n" || word == "no\n") << word;
  write_file(folder / "prompts", "{\"prompt\": \"Once\"}\n{\"prompt\": \"A cat\"}\n");
  const Outcome many =
      run_pinion(generate(kStories, {"--prompts", folder / "prompts", "--grammar", folder / "grammar"}));
  EXPECT_EQ(many.status, 0) << many.err;
  EXPECT_NE(many.out.find("\"finish_reason\":\"stop\""), std::string::npos) << many.out;
  const Outcome bad = run_pinion(generate(kStories, {"--prompt", "Once", "--json-schema", folder / "bad"}));
  EXPECT_EQ(bad.status, 1);
  EXPECT_NE(bad.err.find("bad: #/type: not a type of JSON schema: \"strin\""), std::string::npos) << bad.err;
  EXPECT_EQ(run_pinion(generate(kStories, {"--prompt", "Once", "--grammar", "/nowhere"})).status, 1);
}

// llama.cpp's converter made the file of the folder (tools/reference/make_gguf_families.py).
TEST(Generate, GgufFilesRunAsTheirFolders) {
  const std::string file = PINION_TEST_DATA "/gguf/stories260k.gguf";
  for (const char* quant : {"none", "w8a8"}) {
    const std::vector<std::string> tail = {
        "--prompt", "Once upon a time, there was", "--max-tokens", "24", "--quant", quant, "--json"};
    const json expected = run_json(generate(kStories, tail)), found = run_json(generate(file, tail));
    for (const char* key : {"prompt_ids", "ids", "text"}) EXPECT_EQ(found[key], expected[key]) << quant;
  }
  const std::vector<std::string> adapted = {"--lora", PINION_TEST_DATA "/lora/llama", "--prompt", "Once"};
  expect_failure(run_pinion(generate(file, adapted)), 1, ".lora_A.0");
  const Outcome inspect = run_pinion({"inspect", "--model", file});
  EXPECT_NE(inspect.out.find("tokenizer_file: tokenizer.model"), std::string::npos) << inspect.out << inspect.err;
}

}  // namespace
}  // namespace pinion
