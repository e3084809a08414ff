// The C API over a tiny random Gemma 3: the answers of transformers, and the promises of the
// header.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "markbase/markbase.h"
#include "support/golden.h"

namespace {

using markbase::testing::golden_path;
using markbase::testing::read_npy;

const char* const kFolder = "tiny_gemma3_gguf/";

std::string take_message(mb_error* error) {
  std::string message = mb_error_message(error);
  mb_error_free(error);
  return message;
}
// A call that has to succeed.
#define MB_EXPECT_OK(call)                         \
  do {                                             \
    mb_error* error = nullptr;                     \
    EXPECT_EQ(call, MB_OK) << take_message(error); \
  } while (false)

class CEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    mb_engine_options options;
    MB_EXPECT_OK(mb_engine_options_init(&options, sizeof(options), &error));
    options.num_threads = 2;
    const std::string path = golden_path(std::string(kFolder) + "tiny.gguf");
    MB_EXPECT_OK(mb_engine_load(path.c_str(), &options, &engine_, &error));
    ASSERT_NE(engine_, nullptr);
    ids_ = read_npy<int32_t>(golden_path(std::string(kFolder) + "ids.npy")).values;
  }
  void TearDown() override { mb_engine_free(engine_); }

  mb_request request(int64_t max_tokens) {
    mb_request to;
    MB_EXPECT_OK(mb_request_init(&to, sizeof(to), nullptr, &error));
    to.ids = ids_.data();
    to.num_ids = ids_.size();
    to.max_tokens = max_tokens;
    to.temperature = 0;
    to.ignore_eos = 1;
    return to;
  }

  mb_engine* engine_ = nullptr;
  std::vector<int32_t> ids_;
};

mb_completion get(const mb_completions* completions, size_t idx) {
  mb_completion completion = {};
  completion.size = sizeof(completion);
  MB_EXPECT_OK(mb_completion_get(completions, idx, &completion, &error));
  return completion;
}

struct Seen {
  std::string text;
  std::vector<int32_t> ids;
  size_t most = 1000;  // events, then the answer is stopped
};
int32_t see(const mb_event* event, void* user) {
  auto* seen = static_cast<Seen*>(user);
  EXPECT_EQ(event->size, sizeof(mb_event));
  EXPECT_EQ(event->text.data[event->text.num_bytes], '\0');
  seen->text.append(event->text.data, event->text.num_bytes);
  if (event->id >= 0) seen->ids.push_back(event->id);
  return seen->ids.size() < seen->most ? 1 : 0;
}

TEST_F(CEngine, AnswersAsTheReferenceDoes) {
  const auto expected = read_npy<int32_t>(golden_path(std::string(kFolder) + "greedy.npy")).values;
  const mb_request asked = request(static_cast<int64_t>(expected.size()));
  Seen seen;
  mb_completions* completions = nullptr;
  size_t num = 0;
  MB_EXPECT_OK(mb_generate(engine_, &asked, see, &seen, &completions, &num, &error));
  ASSERT_EQ(num, 1U);
  const mb_completion answer = get(completions, 0);
  EXPECT_EQ(std::vector<int32_t>(answer.ids, answer.ids + answer.num_ids), expected);
  EXPECT_EQ(std::vector<int32_t>(answer.prompt_ids, answer.prompt_ids + answer.num_prompt_ids),
            ids_);
  EXPECT_STREQ(answer.finish_reason.data, "length");
  EXPECT_EQ(seen.ids, expected);
  EXPECT_EQ(seen.text, std::string(answer.text.data, answer.text.num_bytes));
  EXPECT_FALSE(seen.text.empty());
  mb_timings timings = {};
  timings.size = sizeof(timings);
  MB_EXPECT_OK(mb_completion_timings(completions, 0, &timings, &error));
  EXPECT_EQ(timings.prompt_tokens, static_cast<int64_t>(ids_.size()));
  EXPECT_EQ(timings.generated_tokens, static_cast<int64_t>(expected.size()));
  mb_completions_free(completions);
}

// Counts events with log probabilities, by answer.
int32_t count_logprobs(const mb_event* event, void* user) {
  if (event->id < 0) return 1;
  EXPECT_NE(event->logprobs, nullptr);
  if (event->logprobs == nullptr || event->answer_idx >= 3) return 0;
  EXPECT_EQ(event->logprobs->chosen.id, event->id);
  EXPECT_EQ(event->logprobs->num_top, 2U);
  ++static_cast<std::vector<size_t>*>(user)->at(event->answer_idx);
  return 1;
}

TEST_F(CEngine, SeveralAnswersWithLogProbabilities) {
  const auto logits = read_npy<float>(golden_path(std::string(kFolder) + "logits.npy"));
  const std::vector<double> row(logits.values.end() - logits.shape.back(), logits.values.end());
  const auto likeliest = std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double value : row) sum += std::exp(value - *likeliest);

  mb_request asked = request(6);
  asked.temperature = 1;
  asked.seed = 5;
  asked.num_answers = 3;
  asked.top_logprobs = 2;
  std::vector<size_t> events(3);
  mb_completions* completions = nullptr;
  size_t num = 0;
  MB_EXPECT_OK(mb_generate(engine_, &asked, count_logprobs, &events, &completions, &num, &error));
  ASSERT_EQ(num, 3U);
  for (size_t i = 0; i < num; ++i) {
    const mb_completion answer = get(completions, i);
    EXPECT_EQ(answer.answer_idx, i);
    ASSERT_EQ(answer.num_ids, 6U);
    ASSERT_EQ(answer.num_logprobs, 6U);
    EXPECT_EQ(events[i], 6U);
    mb_token_logprobs first = {};
    first.size = sizeof(first);
    MB_EXPECT_OK(mb_completion_logprobs(completions, i, 0, &first, &error));
    EXPECT_EQ(first.chosen.id, answer.ids[0]);
    ASSERT_EQ(first.num_top, 2U);
    EXPECT_EQ(first.top[0].id, likeliest - row.begin());
    // Twice what a logit may be off: see Logits.
    EXPECT_NEAR(first.top[0].logprob, -std::log(sum), 0.06);
    EXPECT_GE(first.top[0].logprob, first.top[1].logprob);
    EXPECT_NEAR(first.chosen.logprob,
                row[static_cast<size_t>(first.chosen.id)] - *likeliest - std::log(sum), 0.06);
  }
  mb_completions_free(completions);
}

TEST_F(CEngine, ManyThreadsSubmit) {
  const auto expected = read_npy<int32_t>(golden_path(std::string(kFolder) + "greedy.npy")).values;
  std::vector<std::jthread> threads;
  for (size_t i = 1; i <= 8; ++i) {
    threads.emplace_back([this, i, &expected] {
      const size_t most = std::min(i, expected.size());
      const mb_request asked = request(static_cast<int64_t>(most));
      mb_request_handle* handle = nullptr;
      mb_completions* completions = nullptr;
      MB_EXPECT_OK(mb_submit(engine_, &asked, nullptr, nullptr, &handle, &error));
      MB_EXPECT_OK(mb_wait(handle, &completions, nullptr, &error));
      mb_request_handle_free(handle);
      const mb_completion answer = get(completions, 0);
      EXPECT_EQ(std::vector<int32_t>(answer.ids, answer.ids + answer.num_ids),
                std::vector<int32_t>(expected.begin(), expected.begin() + static_cast<long>(most)));
      mb_completions_free(completions);
    });
  }
}

TEST_F(CEngine, TheCallbackStopsAnAnswer) {
  const mb_request asked = request(-1);
  Seen seen;
  seen.most = 3;
  mb_completions* completions = nullptr;
  MB_EXPECT_OK(mb_generate(engine_, &asked, see, &seen, &completions, nullptr, &error));
  const mb_completion answer = get(completions, 0);
  EXPECT_STREQ(answer.finish_reason.data, "cancelled");
  EXPECT_EQ(answer.num_ids, 3U);
  mb_completions_free(completions);
}

// The callback waits for cancel(), so that there is an answer to cancel.
struct Held {
  std::promise<void> begun;
  std::promise<void> cancelled;
  bool first = true;
};
int32_t hold(const mb_event*, void* user) {
  auto* held = static_cast<Held*>(user);
  if (!std::exchange(held->first, false)) return 1;
  held->begun.set_value();
  held->cancelled.get_future().wait();
  return 1;
}

TEST_F(CEngine, CancelEndsAnAnswer) {
  const mb_request asked = request(-1);
  Held held;
  mb_request_handle* handle = nullptr;
  MB_EXPECT_OK(mb_submit(engine_, &asked, hold, &held, &handle, &error));
  held.begun.get_future().wait();
  MB_EXPECT_OK(mb_cancel(handle, &error));
  held.cancelled.set_value();
  mb_completions* completions = nullptr;
  MB_EXPECT_OK(mb_wait(handle, &completions, nullptr, &error));
  EXPECT_STREQ(get(completions, 0).finish_reason.data, "cancelled");
  mb_completions_free(completions);
  // Once a handle.
  mb_error* error = nullptr;
  EXPECT_NE(mb_wait(handle, &completions, nullptr, &error), MB_OK);
  EXPECT_NE(take_message(error).find("twice"), std::string::npos);
  mb_request_handle_free(handle);
}

TEST_F(CEngine, FreeingTheEngineEndsItsRequests) {
  const mb_request asked = request(-1);
  Held held;
  mb_request_handle* handle = nullptr;
  MB_EXPECT_OK(mb_submit(engine_, &asked, hold, &held, &handle, &error));
  held.begun.get_future().wait();
  std::jthread freeing([this] { mb_engine_free(std::exchange(engine_, nullptr)); });
  held.cancelled.set_value();
  mb_completions* completions = nullptr;
  MB_EXPECT_OK(mb_wait(handle, &completions, nullptr, &error));
  mb_completions_free(completions);
  freeing.join();
  MB_EXPECT_OK(mb_cancel(handle, &error));  // too late, and harmless
  mb_request_handle_free(handle);
}

// Refused before anything runs: the answer could never be waited for.
TEST_F(CEngine, ACallbackCannotGenerate) {
  struct Asked {
    mb_engine* engine;
    mb_request request;
    mb_status status = MB_OK;
    std::string message = {};
  } asked = {engine_, request(50)};
  const auto ask = [](const mb_event*, void* user) -> int32_t {
    auto* a = static_cast<Asked*>(user);
    mb_completions* completions = nullptr;
    mb_error* error = nullptr;
    a->status =
        mb_generate(a->engine, &a->request, nullptr, nullptr, &completions, nullptr, &error);
    if (a->status != MB_OK) a->message = take_message(error);
    return 1;
  };
  const mb_request once = request(1);
  mb_completions* completions = nullptr;
  MB_EXPECT_OK(mb_generate(engine_, &once, ask, &asked, &completions, nullptr, &error));
  mb_completions_free(completions);
  EXPECT_EQ(asked.status, MB_USAGE);
  EXPECT_NE(asked.message.find("callback"), std::string::npos) << asked.message;
  mb_engine_stats stats = {};
  stats.size = sizeof(stats);
  MB_EXPECT_OK(mb_engine_get_stats(engine_, &stats, &error));
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.generated_tokens, 1);
}

TEST_F(CEngine, RefusesWithAMessage) {
  const auto refused = [this](auto change) {
    mb_request asked = request(4);
    change(asked);
    mb_request_handle* handle = nullptr;
    mb_error* error = nullptr;
    EXPECT_EQ(mb_submit(engine_, &asked, nullptr, nullptr, &handle, &error), MB_USAGE);
    EXPECT_EQ(handle, nullptr);
    return take_message(error);
  };
  const int32_t outside = 1 << 30;
  EXPECT_NE(refused([](mb_request& r) { r.temperature = -1; }).find("temperature"),
            std::string::npos);
  EXPECT_NE(refused([](mb_request& r) { r.max_tokens = -7; }).find("max_tokens"),
            std::string::npos);
  EXPECT_NE(refused([&](mb_request& r) { r.ids = &outside, r.num_ids = 1; }).find("1073741824"),
            std::string::npos);
  EXPECT_NE(refused([](mb_request& r) { r.tools = mb_text("[]"); }).find("tools"),
            std::string::npos);
}

TEST_F(CEngine, ModelInfoAndRecommendedSampling) {
  mb_model_info info = {};
  info.size = sizeof(info);
  MB_EXPECT_OK(mb_engine_model_info(engine_, &info, &error));
  EXPECT_STREQ(info.architecture.data, "gemma3_text");
  EXPECT_NE(std::strstr(info.backend.data, "2 threads"), nullptr);
  EXPECT_GT(info.vocab_size, 0);
  EXPECT_GT(info.weight_bytes, 0U);
  mb_request asked;
  MB_EXPECT_OK(mb_request_init(&asked, sizeof(asked), engine_, &error));
  EXPECT_EQ(asked.temperature, info.temperature);
  EXPECT_EQ(asked.top_k, info.top_k);
  EXPECT_EQ(asked.top_p, info.top_p);
}

struct Rows {
  std::vector<float> values;
  int64_t most = 1 << 30;
};
int32_t take_row(int64_t position, const float* row, size_t vocab_size, void* user) {
  auto* rows = static_cast<Rows*>(user);
  rows->values.insert(rows->values.end(), row, row + vocab_size);
  return position + 1 < rows->most ? 1 : 0;
}

TEST_F(CEngine, Logits) {
  const auto expected = read_npy<float>(golden_path(std::string(kFolder) + "logits.npy"));
  Rows rows;
  MB_EXPECT_OK(mb_logits(engine_, ids_.data(), ids_.size(), 0, take_row, &rows, &error));
  ASSERT_EQ(rows.values.size(), expected.values.size());
  for (size_t i = 0; i < rows.values.size(); ++i) {
    // The bound of this model on this backend, with a cache of 16 bits on top.
    ASSERT_NEAR(rows.values[i], expected.values[i], 0.03) << i;
  }
  Rows last;
  MB_EXPECT_OK(mb_logits(engine_, ids_.data(), ids_.size(), 1, take_row, &last, &error));
  ASSERT_EQ(last.values.size(), static_cast<size_t>(expected.shape.back()));
  EXPECT_EQ(last.values,
            std::vector<float>(rows.values.end() - expected.shape.back(), rows.values.end()));
  Rows stopped;
  stopped.most = 2;
  EXPECT_EQ(mb_logits(engine_, ids_.data(), ids_.size(), 0, take_row, &stopped, nullptr),
            MB_CANCELLED);
  EXPECT_EQ(stopped.values.size(), 2 * last.values.size());
}

TEST_F(CEngine, PromptIdsAreThoseOfTheTokenizer) {
  mb_tokenizer* tokenizer = nullptr;
  const std::string path = golden_path(std::string(kFolder) + "tiny.gguf");
  MB_EXPECT_OK(mb_tokenizer_load(path.c_str(), &tokenizer, &error));
  int64_t vocab_size = 0;
  MB_EXPECT_OK(mb_tokenizer_vocab_size(tokenizer, &vocab_size, &error));
  int32_t* ids = nullptr;
  size_t num_ids = 0;
  MB_EXPECT_OK(mb_tokenizer_encode(tokenizer, {"a\0b", 3}, 1, 0, &ids, &num_ids, &error));
  ASSERT_GT(num_ids, 1U);
  for (size_t i = 0; i < num_ids; ++i) EXPECT_TRUE(ids[i] >= 0 && ids[i] < vocab_size);

  mb_request asked = request(1);
  asked.ids = nullptr;
  asked.num_ids = 0;
  asked.text = {"a\0b", 3};
  int32_t* prompt = nullptr;
  size_t num_prompt = 0;
  MB_EXPECT_OK(mb_prompt_ids(engine_, &asked, &prompt, &num_prompt, &error));
  EXPECT_EQ(std::vector<int32_t>(prompt, prompt + num_prompt),
            std::vector<int32_t>(ids, ids + num_ids));
  char* text = nullptr;
  size_t num_bytes = 0;
  MB_EXPECT_OK(mb_tokenizer_decode(tokenizer, ids, num_ids, 1, &text, &num_bytes, &error));
  EXPECT_EQ(std::string(text, num_bytes), std::string("a\0b", 3));
  EXPECT_EQ(text[num_bytes], '\0');
  mb_free(text);
  mb_free(ids);
  mb_free(prompt);
  const int32_t outside = -1;
  EXPECT_EQ(mb_tokenizer_decode(tokenizer, &outside, 1, 0, &text, nullptr, nullptr), MB_USAGE);
  mb_tokenizer_free(tokenizer);
}

TEST(CLoad, SaysWhatIsWrong) {
  mb_engine* engine = nullptr;
  mb_tokenizer* tokenizer = nullptr;
  mb_error* error = nullptr;
  EXPECT_EQ(mb_engine_load("no-such-model.gguf", nullptr, &engine, &error), MB_BAD_INPUT);
  EXPECT_EQ(engine, nullptr);
  EXPECT_EQ(mb_error_status(error), MB_BAD_INPUT);
  EXPECT_NE(take_message(error).find("no-such-model.gguf"), std::string::npos);
  EXPECT_EQ(mb_tokenizer_load("no-such-model.gguf", &tokenizer, &error), MB_BAD_INPUT);
  EXPECT_NE(take_message(error).find("no-such-model.gguf"), std::string::npos);

  const std::string path = golden_path(std::string(kFolder) + "tiny.gguf");
  const auto refused = [&](auto change) {
    mb_engine_options options;
    EXPECT_EQ(mb_engine_options_init(&options, sizeof(options), nullptr), MB_OK);
    change(options);
    EXPECT_EQ(mb_engine_load(path.c_str(), &options, &engine, &error), MB_USAGE);
    EXPECT_EQ(engine, nullptr);
    return take_message(error);
  };
  using O = mb_engine_options;
  EXPECT_NE(refused([](O& o) { o.backend = 9; }).find("backend"), std::string::npos);
  EXPECT_NE(refused([](O& o) { o.backend = -1; }).find("backend"), std::string::npos);
  EXPECT_NE(refused([](O& o) { o.num_threads = -1; }).find("threads"), std::string::npos);
  EXPECT_NE(refused([](O& o) { o.context_tokens = -1; }).find("ctx"), std::string::npos);
  EXPECT_NE(refused([](O& o) { o.prefill_chunk_tokens = 0; }).find("chunk"), std::string::npos);
  EXPECT_NE(refused([](O& o) { o.max_sequences = 0; }).find("max_sequences"), std::string::npos);
  for (const int64_t queue : {int64_t{-1}, int64_t{-8}, INT64_MIN, INT64_MAX}) {
    EXPECT_NE(refused([&](O& o) { o.max_queue = queue; }).find("max_queue"), std::string::npos);
  }
  const auto on_ref = [](O& o) { o.backend = MB_BACKEND_REF, o.cpu_isa = "generic"; };
  EXPECT_NE(refused(on_ref).find("cpu-isa"), std::string::npos);
  EXPECT_NE(refused([](O& o) { o.cpu_isa = nullptr; }).find("cpu_isa"), std::string::npos);
  EXPECT_NE(refused([](O& o) { o.kv = "f64"; }).find("f64"), std::string::npos);
  EXPECT_NE(refused([](O& o) { o.prefix_cache = 7; }).find("prefix_cache"), std::string::npos);
  EXPECT_NE(refused([](O& o) { o.size = 0; }).find("size"), std::string::npos);
}

struct Told {
  int progress = 0;
  std::string messages;
};

TEST(CLoad, TellsProgressAndMessages) {
  Told told;
  mb_engine_options options;
  MB_EXPECT_OK(mb_engine_options_init(&options, sizeof(options), &error));
  options.on_progress = [](const mb_progress* progress, void* user) {
    EXPECT_GT(progress->what.num_bytes, 0U);
    EXPECT_LE(progress->done, progress->total);
    ++static_cast<Told*>(user)->progress;
  };
  options.progress_user = &told;
  options.on_message = [](mb_severity, mb_string message, void* user) {
    static_cast<Told*>(user)->messages.append(message.data, message.num_bytes);
  };
  options.message_user = &told;
  mb_engine* engine = nullptr;
  const std::string path = golden_path(std::string(kFolder) + "tiny.gguf");
  MB_EXPECT_OK(mb_engine_load(path.c_str(), &options, &engine, &error));
  EXPECT_GT(told.progress, 0);
  EXPECT_FALSE(told.messages.empty());
  mb_engine_free(engine);
}

TEST(CDoors, NullIsAUsageErrorEverywhere) {
  const std::vector<std::pair<const char*, mb_status (*)(mb_error**)>> doors = {
      {"options", [](mb_error** e) { return mb_engine_options_init(nullptr, 0, e); }},
      {"request", [](mb_error** e) { return mb_request_init(nullptr, 0, nullptr, e); }},
      {"path", [](mb_error** e) { return mb_engine_load(nullptr, nullptr, nullptr, e); }},
      {"engine", [](mb_error** e) { return mb_engine_load("x", nullptr, nullptr, e); }},
      {"engine", [](mb_error** e) { return mb_engine_model_info(nullptr, nullptr, e); }},
      {"engine",
       [](mb_error** e) { return mb_submit(nullptr, nullptr, nullptr, nullptr, nullptr, e); }},
      {"engine",
       [](mb_error** e) {
         return mb_generate(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, e);
       }},
      {"engine", [](mb_error** e) { return mb_prompt_ids(nullptr, nullptr, nullptr, nullptr, e); }},
      {"engine",
       [](mb_error** e) { return mb_logits(nullptr, nullptr, 0, 0, nullptr, nullptr, e); }},
      {"handle", [](mb_error** e) { return mb_cancel(nullptr, e); }},
      {"handle", [](mb_error** e) { return mb_wait(nullptr, nullptr, nullptr, e); }},
      {"completions", [](mb_error** e) { return mb_completion_get(nullptr, 0, nullptr, e); }},
      {"completions", [](mb_error** e) { return mb_completion_timings(nullptr, 0, nullptr, e); }},
      {"completions",
       [](mb_error** e) { return mb_completion_tool_call(nullptr, 0, 0, nullptr, e); }},
      {"completions",
       [](mb_error** e) { return mb_completion_broken_call(nullptr, 0, 0, nullptr, e); }},
      {"completions", [](mb_error** e) { return mb_completion_label(nullptr, 0, 0, nullptr, e); }},
      {"completions",
       [](mb_error** e) { return mb_completion_logprobs(nullptr, 0, 0, nullptr, e); }},
      {"path", [](mb_error** e) { return mb_tokenizer_load(nullptr, nullptr, e); }},
      {"tokenizer", [](mb_error** e) { return mb_tokenizer_load("x", nullptr, e); }},
      {"tokenizer", [](mb_error** e) { return mb_tokenizer_vocab_size(nullptr, nullptr, e); }},
      {"tokenizer",
       [](mb_error** e) { return mb_tokenizer_encode(nullptr, {}, 0, 0, nullptr, nullptr, e); }},
      {"tokenizer",
       [](mb_error** e) {
         return mb_tokenizer_decode(nullptr, nullptr, 0, 0, nullptr, nullptr, e);
       }},
      {"tokenizer",
       [](mb_error** e) {
         return mb_tokenizer_chat_prompt(nullptr, {}, nullptr, nullptr, nullptr, nullptr, e);
       }},
  };
  for (const auto& [name, call] : doors) {
    mb_error* error = nullptr;
    EXPECT_EQ(call(&error), MB_USAGE) << name;
    EXPECT_EQ(take_message(error), std::string(name) + ": expected a pointer, got NULL");
    EXPECT_EQ(call(nullptr), MB_USAGE) << name;
  }
  mb_engine_free(nullptr);
  mb_request_handle_free(nullptr);
  mb_completions_free(nullptr);
  mb_tokenizer_free(nullptr);
  mb_error_free(nullptr);
  mb_free(nullptr);
  EXPECT_EQ(mb_error_status(nullptr), MB_OK);
  EXPECT_STREQ(mb_error_message(nullptr), "");
}

// With a handle that is one, the rest is still looked at.
TEST_F(CEngine, NullBesideAnEngineIsAUsageErrorToo) {
  const mb_request asked = request(1);
  mb_request_handle* handle = nullptr;
  mb_completions* completions = nullptr;
  int32_t* ids = nullptr;
  size_t num = 0;
  EXPECT_EQ(mb_engine_model_info(engine_, nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_submit(engine_, nullptr, nullptr, nullptr, &handle, nullptr), MB_USAGE);
  EXPECT_EQ(mb_submit(engine_, &asked, nullptr, nullptr, nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_generate(engine_, nullptr, nullptr, nullptr, &completions, nullptr, nullptr),
            MB_USAGE);
  EXPECT_EQ(mb_generate(engine_, &asked, nullptr, nullptr, nullptr, nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_prompt_ids(engine_, nullptr, &ids, &num, nullptr), MB_USAGE);
  EXPECT_EQ(mb_prompt_ids(engine_, &asked, nullptr, &num, nullptr), MB_USAGE);
  EXPECT_EQ(mb_prompt_ids(engine_, &asked, &ids, nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_logits(engine_, nullptr, 3, 0, take_row, nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_logits(engine_, nullptr, 0, 0, take_row, nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_logits(engine_, ids_.data(), 1, 0, nullptr, nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_logits(engine_, ids_.data(), 1, 5, take_row, nullptr, nullptr), MB_USAGE);
}

TEST(CVersion, IsTheHeadersVersion) { EXPECT_STREQ(mb_version(), MARKBASE_VERSION); }

}  // namespace
