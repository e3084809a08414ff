// The documents of inspect, verify, bench, perplexity and the naming of models.
#include "markbase/tools.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/json.h"
#include "runtime/loaded_model.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace markbase::tools {
namespace {

namespace fs = std::filesystem;
using markbase::testing::golden_path;
using markbase::testing::TempDir;

base::Json parsed(const Result<std::string>& document) {
  if (!document.ok()) {
    ADD_FAILURE() << document.error().message;
    return {};
  }
  return *base::parse_json(*document, "document");
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// Bytes after the rows: from the brace that opens the record.
uintmax_t record_bytes(const std::string& path) {
  const std::string bytes = markbase::testing::read_file(path);
  return bytes.size() - bytes.rfind("{\"window_tokens\"");
}

TEST(ResolveModel, PathsNamesAndTheCache) {
  const TempDir temp;
  const fs::path root = temp.path();
  write(root / "models/alpha-q4.gguf", "x");
  write(root / "models/beta/config.json", "{}");
  write(root / "models/mmproj-alpha.gguf", "x");
  write(root / "hf/hub/models--org--gamma/refs/main", "abc\n");
  write(root / "hf/hub/models--org--gamma/snapshots/abc/config.json", "{}");
  write(root / "hf/hub/models--org--gamma/snapshots/old/config.json", "{}");
  const ModelPlaces places = {(root / "models").string(), (root / "hf/hub").string()};
  const auto path_of = [&](const std::string& name) {
    const Result<std::string> path = resolve_model(name, places);
    return path.ok() ? fs::relative(*path, root).string() : path.error().message;
  };
  EXPECT_EQ(path_of("alpha-q4"), "models/alpha-q4.gguf");
  EXPECT_EQ(path_of("alpha-q4.gguf"), "models/alpha-q4.gguf");
  EXPECT_EQ(path_of("beta"), "models/beta");
  EXPECT_EQ(path_of("org/gamma"), "hf/hub/models--org--gamma/snapshots/abc");
  EXPECT_EQ(path_of((root / "models/beta").string()), "models/beta");
  const Result<std::string> missing = resolve_model("alpa-q4", places);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kBadInput);
  EXPECT_NE(missing.error().message.find("\"alpha-q4\""), std::string::npos)
      << missing.error().message;
  EXPECT_NE(missing.error().message.find(places.models_dir), std::string::npos);
  EXPECT_EQ(parsed(list_json(places)).size(), 3U);
  // Packed weights that are kept beside a model are no part of it.
  write(root / "models/beta/model.gguf.cpu1.repacked", "1234567");
  EXPECT_EQ(parsed(list_json(places))[1]["bytes"], 2);
}

TEST(Inspect, TinyModel) {
  InspectOptions options;
  options.tensors = true;
  const base::Json json = parsed(inspect_json(golden_path("tiny_gemma3_gguf/tiny.gguf"), options));
  EXPECT_EQ(json["architecture"], "gemma3_text");
  EXPECT_EQ(json["layers"].size(), 7U);
  EXPECT_EQ(json["layers"][5]["kind"], "full_attention");
  EXPECT_EQ(json["unused"].size(), 0U);
  EXPECT_EQ(json["faults"].size(), 0U);
  EXPECT_TRUE(json["plan"]["fits"].get<bool>());
  EXPECT_EQ(json["tokenizer"]["vocab_size"], 300);
}

TEST(Verify, WholeAndBroken) {
  const std::string source = golden_path("tiny_gemma3_gguf/tiny.gguf");
  const base::Json whole = parsed(verify_json(source, {}));
  EXPECT_EQ(whole["faults"].size(), 0U) << whole.dump();
  EXPECT_GT(whole["tensors"].get<int>(), 90);

  // Weights without their tokenizer, and beside them a pointer that git-lfs never replaced.
  const TempDir temp;
  const fs::path directory = temp.path();
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(golden_path(std::string("tiny_gemma3_f32/") + file), directory / file);
  }
  write(directory / "extra.bin",
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  const base::Json broken = parsed(verify_json(directory.string(), {}));
  EXPECT_EQ(broken["faults"].size(), 2U) << broken.dump();

  // A configuration that contradicts the tensors: every one of them is named in one run.
  std::string config = markbase::testing::read_file((directory / "config.json").string());
  const std::string key = "\"intermediate_size\": 64";
  ASSERT_NE(config.find(key), std::string::npos);
  config.replace(config.find(key), key.size(), "\"intermediate_size\": 96");
  write(directory / "config.json", config);
  const base::Json contradicted = parsed(verify_json(directory.string(), {}));
  EXPECT_EQ(contradicted["faults"].size(), 2U + 7U * 3U) << contradicted.dump();
}

TEST(Bench, TinyModel) {
  EngineOptions engine;
  engine.num_threads = 1;
  BenchOptions options;
  options.prefill_tokens = {20};
  options.decode_tokens = 4;
  options.depths = {0, 8};
  options.batches = {1, 3};
  options.repetitions = 1;
  const base::Json json =
      parsed(bench_json(golden_path("tiny_gemma3_gguf/tiny.gguf"), engine, options));
  ASSERT_EQ(json["tests"].size(), 6U);
  EXPECT_EQ(json["tests"][0]["kind"], "load");
  EXPECT_EQ(json["tests"][1]["kind"], "prefill");
  EXPECT_EQ(json["tests"][5]["batch"], 3);
  EXPECT_EQ(json["tests"][5]["depth"], 8);
  EXPECT_GT(json["tests"][5]["tokens_per_s"]["median"].get<double>(), 0);
  EXPECT_GT(json["tests"][5]["bytes_read"].get<double>(), 0);
}

TEST(Doctor, ForetellsWhatLoadingPlans) {
  const std::string path = golden_path("tiny_gemma3_gguf/tiny.gguf");
  EngineOptions engine;
  engine.num_threads = 1;
  engine.context_tokens = 64;
  engine.prefill_chunk_tokens = 7;
  engine.kv = "q8";
  const auto model = runtime::load_model(path, engine);
  ASSERT_TRUE(model.ok()) << model.error().message;
  InspectOptions options;
  options.engine = engine;
  for (const base::Json& plan : {parsed(doctor_json(path, engine))["model"]["plan"],
                                 parsed(inspect_json(path, options))["plan"]}) {
    EXPECT_EQ(plan["weight_bytes"], (*model)->plan.weight_bytes);
    EXPECT_EQ(plan["kv_bytes"], (*model)->plan.kv_bytes);
    EXPECT_EQ(plan["scratch_bytes"], (*model)->plan.scratch_bytes);
  }
}

// The budget is looked at for the largest test before anything is read or run.
TEST(Bench, StaysWithinTheBudgetAndTheContext) {
  const std::string path = golden_path("tiny_gemma3_gguf/tiny.gguf");
  EngineOptions engine;
  engine.num_threads = 1;
  std::string said;
  engine.message = [&](Severity, std::string_view text) { said += text; };
  BenchOptions options;
  options.decode_tokens = 4;
  options.repetitions = 1;
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  engine.memory_bytes = 256 * kMiB;  // the probe of bandwidth alone needs that
  const Result<std::string> without_room = bench_json(path, engine, options);
  EXPECT_EQ(without_room.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(without_room.error().message.find("bandwidth probe 256.0 MiB"), std::string::npos);
  engine.memory_bytes = 272 * kMiB;
  EXPECT_TRUE(bench_json(path, engine, options).ok());
  EXPECT_NE(said.find("KV cache"), std::string::npos);
  options.batches = {1, 4096};
  EXPECT_EQ(said.find("4096 x"), std::string::npos);
  const Result<std::string> many = bench_json(path, engine, options);
  EXPECT_EQ(many.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(many.error().message.find("(4096 x 4 tokens)"), std::string::npos)
      << many.error().message;

  options.batches = {1, 3};
  options.depths = {5, 0};
  said.clear();
  EXPECT_TRUE(bench_json(path, engine, options).ok());
  EXPECT_NE(said.find("(3 x 9 tokens)"), std::string::npos) << said;
  engine.context_tokens = 8;
  EXPECT_EQ(bench_json(path, engine, options).error().code, ErrorCode::kUsage);
  engine.context_tokens = 9;
  EXPECT_TRUE(bench_json(path, engine, options).ok());
}

TEST(Perplexity, WindowsScoreEveryTokenOnceAndAgreeWithThemselves) {
  EngineOptions engine_options;
  engine_options.backend = BackendKind::kRef;
  Result<Engine> engine = Engine::load(golden_path("tiny_gemma3_gguf/tiny.gguf"), engine_options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const std::string text = "the whale and the ship and the sea in the morning light on the water";
  const TempDir temp;
  PerplexityOptions options;
  options.window_tokens = 16;
  options.save_logits = temp.file("rows.npy");
  const base::Json first = parsed(perplexity_json(*engine, text, options, {}));
  const auto tokens = first["tokens"].get<int64_t>();
  EXPECT_EQ(first["windows"].get<int64_t>(), (tokens + 14) / 15);
  EXPECT_NEAR(first["perplexity"].get<double>(), std::exp(first["mean_nll"].get<double>()), 1e-9);
  options.against = options.save_logits;
  options.save_logits.clear();
  const base::Json again = parsed(perplexity_json(*engine, text, options, {}));
  EXPECT_LT(again["kl"]["max"].get<double>(), 1e-9);
  EXPECT_EQ(again["top1_agreement"], 1.0);
  options.against.clear();
  options.stride_tokens = 5;
  const base::Json strided = parsed(perplexity_json(*engine, text, options, {}));
  EXPECT_EQ(strided["tokens"], tokens);
  EXPECT_NE(strided["mean_nll"], first["mean_nll"]);
  options.stride_tokens = 16;
  EXPECT_EQ(perplexity_json(*engine, text, options, {}).error().code, ErrorCode::kUsage);
}

TEST(Perplexity, RowsOfAnotherTextOrOtherWindowsAreRefused) {
  EngineOptions engine_options;
  engine_options.backend = BackendKind::kRef;
  Result<Engine> engine = Engine::load(golden_path("tiny_gemma3_gguf/tiny.gguf"), engine_options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const std::string text = "the whale and the ship and the sea";
  const TempDir temp;
  std::string messages;
  PerplexityOptions options;
  options.message = [&](Severity, std::string_view said) { messages += std::string(said) + "\n"; };
  options.window_tokens = 8;
  options.save_logits = temp.file("rows.npy");
  const base::Json saved = parsed(perplexity_json(*engine, text, options, {}));
  const auto tokens = saved["tokens"].get<int64_t>();
  ASSERT_GT(tokens, 8);
  EXPECT_NE(messages.find(fmt::format("[{}, 300], a float32 .npy file of", tokens)),
            std::string::npos)
      << messages;

  options.against = std::exchange(options.save_logits, "");
  const auto refusal = [&](std::string_view words) {
    const Result<std::string> got = perplexity_json(*engine, words, options, {});
    if (got.ok()) return "accepted: " + *got;
    EXPECT_EQ(got.error().code, ErrorCode::kBadInput);
    return got.error().message;
  };
  const auto expect_words = [](const std::string& message, const std::vector<std::string>& words) {
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
  };
  // As many tokens, one of them another.
  expect_words(refusal("the ship and the whale and the sea"), {"text", "there and", "here"});
  options.window_tokens = 9;
  expect_words(refusal(text), {"window_tokens 9", "got 8"});
  options.window_tokens = 8;
  options.stride_tokens = 3;
  expect_words(refusal(text), {"stride_tokens 3", "got 7"});

  // Rows of other programs carry no record: they are compared, and that is said.
  options.stride_tokens = 0;
  const auto rows_end =
      static_cast<uintmax_t>(fs::file_size(options.against) - record_bytes(options.against));
  fs::resize_file(options.against, rows_end);
  messages.clear();
  const base::Json compared = parsed(perplexity_json(*engine, text, options, {}));
  EXPECT_LT(compared["kl"]["max"].get<double>(), 1e-9);
  EXPECT_NE(messages.find("only the shape was compared"), std::string::npos) << messages;
  fs::resize_file(options.against, rows_end - 1);
  expect_words(refusal(text), {"ends before its last row"});
}

TEST(Perplexity, ALongerWindowThanTheTextMakesNoDifference) {
  EngineOptions engine_options;
  engine_options.backend = BackendKind::kRef;
  Result<Engine> engine = Engine::load(golden_path("tiny_gemma3_gguf/tiny.gguf"), engine_options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const TempDir temp;
  PerplexityOptions options;
  options.window_tokens = 60;
  options.save_logits = temp.file("rows.npy");
  const base::Json saved = parsed(perplexity_json(*engine, "the whale", options, {}));
  ASSERT_EQ(saved["windows"], 1);
  options.against = std::exchange(options.save_logits, "");
  options.window_tokens = 30;
  options.stride_tokens = 11;
  EXPECT_LT(parsed(perplexity_json(*engine, "the whale", options, {}))["kl"]["max"].get<double>(),
            1e-9);
}

}  // namespace
}  // namespace markbase::tools
