// A table that stays in its file while the model runs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "markbase/engine.h"
#include "runtime/logits.h"
#include "support/random_decoder.h"
#include "support/temp_dir.h"
#include "support/tiny_gemma4.h"

namespace markbase {
namespace {

using testing::RandomDecoder;

Result<void> run(Engine& engine) {
  const std::vector<int32_t> ids = {2, 5, 7};
  return engine.logits(ids, false,
                       [](int64_t, std::span<const float>) -> Result<void> { return {}; });
}

TEST(MappedTable, FileTruncatedWhileInUseIsAnError) {
  for (const bool gguf : {false, true}) {
    const testing::TempDir dir;
    const testing::TinyCheckpoint checkpoint =
        gguf ? testing::tiny_gemma4_gguf(testing::Gemma4Shape::kE2B)
             : testing::tiny_gemma4_hf(testing::Gemma4Shape::kE2B);
    for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
      const std::string path = gguf ? checkpoint.write_gguf(dir) : checkpoint.write_hf(dir);
      const std::string file = gguf ? path : path + "/model.safetensors";
      EngineOptions options;
      options.backend = backend;
      options.num_threads = 2;
      Result<Engine> engine = Engine::load(path, options);
      ASSERT_TRUE(engine.ok()) << engine.error().message;
      const Result<void> sound = run(*engine);
      EXPECT_TRUE(sound.ok()) << sound.error().message;
      const auto size = static_cast<off_t>(std::filesystem::file_size(file));
      ASSERT_EQ(truncate(file.c_str(), size / 4096 * 4096 / 2), 0);
      const Result<void> cut = run(*engine);
      ASSERT_FALSE(cut.ok());
      EXPECT_EQ(cut.error().code, ErrorCode::kBadInput);
      EXPECT_NE(cut.error().message.find("truncated"), std::string::npos) << cut.error().message;
    }
  }
}

// Ids that the table does not reach take its row 0.
TEST(MappedTable, IdsBeyondTheTableTakeThePaddingRow) {
  constexpr int32_t kRows = 290;
  const RandomDecoder decoder(testing::DecoderShape::kPerLayerInputs, quant::Format::kQ8_0, kRows);
  EngineOptions options;
  options.backend = BackendKind::kCpu;
  options.num_threads = 2;
  runtime::RunnerOptions runner;
  runner.context_tokens = 64;
  const auto model = decoder.load(options, runner);
  std::vector<float> tokens;
  const OnTrace on_trace = [&](const TraceTensor& tensor) -> Result<void> {
    tokens.assign(tensor.values.begin(), tensor.values.end());
    return {};
  };
  runtime::Tracer tracer(*model->backend.backend, "ple.tokens", on_trace);
  const std::vector<int32_t> ids = {0, kRows - 1, kRows, kRows + 5};
  ASSERT_TRUE(runtime::stream_logits(*model, ids, false, &tracer, {}).ok());
  const size_t width = tokens.size() / ids.size();
  const auto row = [&](size_t i) {
    return std::vector<float>(tokens.begin() + static_cast<int64_t>(i * width),
                              tokens.begin() + static_cast<int64_t>((i + 1) * width));
  };
  EXPECT_NE(row(0), row(1));
  EXPECT_EQ(row(0), row(2));
  EXPECT_EQ(row(0), row(3));
}

}  // namespace
}  // namespace markbase
