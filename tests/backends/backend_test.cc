// What every backend promises beside its arithmetic: memory, packing, overflow, sampling.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/random.h"
#include "support/subject.h"
#include "support/weight_data.h"

namespace markbase::testing {
namespace {

class Backends : public ::testing::TestWithParam<std::string> {
 protected:
  Subject subject_ = make_subject(GetParam(), 2);
  ops::Backend& backend_ = *subject_.backend;

  // The overflow word after writing one token whose K (or V) holds `value`.
  int32_t overflow_of(ops::KvType type, float value, bool in_value) {
    constexpr int64_t kDim = 32;
    const ops::KvLayout layout{.type = type, .num_kv_heads = 1, .head_dim = kDim};
    std::vector<float> odd(kDim, 0.5F);
    odd[17] = value;
    const std::vector<float> plain(kDim, -0.25F);
    const std::vector<int32_t> zero = {0};
    const DeviceTensor k = device_floats(backend_, {1, 1, kDim}, in_value ? plain : odd);
    const DeviceTensor v = device_floats(backend_, {1, 1, kDim}, in_value ? odd : plain);
    const DeviceTensor position = device_ints(backend_, {1}, zero);
    const DeviceTensor sequence = device_ints(backend_, {1}, zero);
    const DeviceTensor table = device_ints(backend_, {1, 1}, zero);
    const DeviceTensor overflow = device_ints(backend_, {1}, zero);
    const DeviceTensor blocks(backend_, tensor::DType::kU8,
                              {static_cast<int64_t>(backend_.kv_block_bytes(layout))});
    backend_.kv_write(
        {.k = k.view(),
         .v = v.view(),
         .positions = position.view(),
         .sequences = sequence.view(),
         .cache = {.layout = layout, .blocks = blocks.view().data, .block_table = table.view()},
         .overflow = overflow.view()});
    return overflow.ints()[0];
  }
};

TEST_P(Backends, MemoryIsZeroedAndComesBack) {
  const DeviceTensor zeros(backend_, tensor::DType::kF32, {1000});
  for (const float v : zeros.floats()) ASSERT_EQ(v, 0.0F);
  const std::vector<float> values = random_floats(1, 1000);
  EXPECT_EQ(device_floats(backend_, {1000}, values).floats(), values);
}

TEST_P(Backends, PackReportsEachRowOnce) {
  for (const WeightKind& kind : all_weight_kinds()) {
    constexpr int64_t kRows = 1000;
    const WeightData weight(kind, kRows, kind.col_unit() == 1 ? 64 : 256, 2);
    int64_t reported = 0;
    const auto packed = backend_.pack(weight.view(), "w", [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin, reported);
      EXPECT_LE(begin, end);
      reported = end;
    });
    ASSERT_TRUE(packed.ok()) << kind.name() << ": " << packed.error().message;
    EXPECT_EQ(reported, kRows) << kind.name();
    EXPECT_EQ((*packed)->rows(), kRows);
    EXPECT_EQ((*packed)->cols(), weight.view().cols);
    EXPECT_GT((*packed)->size_bytes(), 0u);
    EXPECT_LE((*packed)->size_bytes(), backend_.packed_bytes(weight.view())) << kind.name();
  }
}

TEST_P(Backends, MappedTableRefusesBytesThatAreNotThere) {
  const std::vector<std::byte> bytes(4 * 64 * 2);
  quant::WeightView table{.format = quant::Format::kBF16, .rows = 4, .cols = 64, .data = bytes};
  const auto mapped = backend_.map_table(table, "table");
  ASSERT_TRUE(mapped.ok());
  EXPECT_TRUE((*mapped)->is_lookup_only());
  EXPECT_EQ((*mapped)->rows(), 4);
  EXPECT_EQ((*mapped)->size_bytes(), 128u);  // one row
  table.rows = 5;
  const auto refused = backend_.map_table(table, "table");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("table"), std::string::npos);
}

TEST_P(Backends, ScoresThatAreNotNumbersStayInTheirRow) {
  constexpr int64_t kExperts = 20;
  constexpr int64_t kChosen = 3;
  std::vector<float> scores = random_floats(5, 3 * kExperts);
  const auto route = [&] {
    const DeviceTensor device = device_floats(backend_, {3, kExperts}, scores);
    const DeviceTensor scale =
        device_floats(backend_, {kExperts}, std::vector<float>(kExperts, 1.0F));
    const DeviceTensor ids(backend_, tensor::DType::kI32, {3, kChosen});
    const DeviceTensor weights(backend_, tensor::DType::kF32, {3, kChosen});
    backend_.route({.scores = device.view(),
                    .expert_scale = scale.view(),
                    .ids = ids.view(),
                    .weights = weights.view()});
    return std::pair(ids.ints(), weights.floats());
  };
  const auto sound = route();
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    scores[kExperts + 4] = odd;
    const auto [ids, weights] = route();
    for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < kExperts) << id;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i / kChosen == 1) {
        EXPECT_TRUE(std::isnan(weights[i]));
      } else {
        EXPECT_EQ(weights[i], sound.second[i]);
        EXPECT_EQ(ids[i], sound.first[i]);
      }
    }
  }
}

// More rows than a backend may take at a time.
TEST_P(Backends, ExpertsOfManyRows) {
  constexpr int64_t kRows = 1100;
  constexpr int64_t kWidth = 32;
  constexpr int64_t kExperts = 3;
  ASSERT_TRUE(backend_
                  .plan({.max_rows = kRows,
                         .max_linear_cols = kWidth,
                         .num_experts = kExperts,
                         .top_k_experts = 2,
                         .expert_inputs = kWidth,
                         .expert_width = kWidth})
                  .ok());
  std::vector<std::unique_ptr<ops::PackedWeight>> weights[3];
  for (uint64_t e = 0; e < kExperts; ++e) {
    for (uint64_t part = 0; part < 3; ++part) {
      const WeightData data({.format = quant::Format::kQ8_0}, kWidth, kWidth, 10 * e + part);
      auto packed = backend_.pack(data.view(), "expert", [](int64_t, int64_t) {});
      ASSERT_TRUE(packed.ok());
      weights[part].push_back(std::move(packed).value());
    }
  }
  const std::vector<float> x = random_floats(1, kRows * kWidth);
  const std::vector<float> shares = random_floats(2, kRows * 2);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kRows; ++i) {
    ids.push_back(i % 3);
    ids.push_back((i + 1 + i / 500) % 3);
  }
  const DeviceTensor all_x = device_floats(backend_, {kRows, kWidth}, x);
  const DeviceTensor all_shares = device_floats(backend_, {kRows, 2}, shares);
  const DeviceTensor all_ids = device_ints(backend_, {kRows, 2}, ids);
  const DeviceTensor y(backend_, tensor::DType::kF32, {kRows, kWidth});
  ops::ExpertsArgs args{.x = all_x.view(),
                        .ids = all_ids.view(),
                        .weights = all_shares.view(),
                        .gate = weights[0],
                        .up = weights[1],
                        .down = weights[2],
                        .y = y.view()};
  backend_.experts(args);
  const std::vector<float> together = y.floats();
  for (const int64_t row : {int64_t{0}, int64_t{1023}, int64_t{1024}, kRows - 1}) {
    const DeviceTensor alone(backend_, tensor::DType::kF32, {1, kWidth});
    args.x = all_x.view().slice(row, 1);
    args.weights = all_shares.view().slice(row, 1);
    args.ids = all_ids.view().slice(row, 1);
    args.y = alone.view();
    backend_.experts(args);
    const std::vector<float> expected = alone.floats();
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), together.begin() + row * kWidth))
        << row;
    EXPECT_GT(std::abs(expected[0]), 0.0F);
  }
}

TEST_P(Backends, PackRefusesScalesThatAreNotFinite) {
  for (const float broken :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<std::byte> words(4 * 64 / 2);
    std::vector<float> scales(4, 1.0F);
    const std::vector<float> biases(4, 0.5F);
    scales[2] = broken;
    const quant::WeightView weight{.format = quant::Format::kAffine,
                                   .rows = 4,
                                   .cols = 64,
                                   .data = words,
                                   .bits = 4,
                                   .group_size = 64,
                                   .scale_dtype = tensor::DType::kF32,
                                   .scales = std::as_bytes(std::span(scales)),
                                   .biases = std::as_bytes(std::span(biases))};
    const auto packed = backend_.pack(weight, "layer.weight", [](int64_t, int64_t) {});
    ASSERT_FALSE(packed.ok());
    EXPECT_EQ(packed.error().code, ErrorCode::kBadInput);
    EXPECT_NE(packed.error().message.find("layer.weight"), std::string::npos);
  }
}

TEST_P(Backends, KvWriteTellsWhatDoesNotFit) {
  using ops::KvType;
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const bool in_value : {false, true}) {
    for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8}) {
      EXPECT_EQ(overflow_of(type, 3.0F, in_value), 0) << ops::kv_type_name(type);
      EXPECT_EQ(overflow_of(type, infinity, in_value), 1) << ops::kv_type_name(type);
      EXPECT_EQ(overflow_of(type, -infinity, in_value), 1) << ops::kv_type_name(type);
      EXPECT_EQ(overflow_of(type, nan, in_value), 1) << ops::kv_type_name(type);
    }
    // 65519 rounds to 65504, the largest half; 65520 would round to 65536.
    EXPECT_EQ(overflow_of(KvType::kF16, 65519.0F, in_value), 0);
    EXPECT_EQ(overflow_of(KvType::kF16, -65520.0F, in_value), 1);
    EXPECT_EQ(overflow_of(KvType::kBF16, 3.389e38F, in_value), 0);
    EXPECT_EQ(overflow_of(KvType::kBF16, std::numeric_limits<float>::max(), in_value), 1);
    EXPECT_EQ(overflow_of(KvType::kF32, std::numeric_limits<float>::max(), in_value), 0);
    EXPECT_EQ(overflow_of(KvType::kQ8, 1e30F, in_value), 0);
  }
}

TEST_P(Backends, SampleGivesTheIdsOfTheRowFunction) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kVocab = 1003;
  constexpr int64_t kWords = (kVocab + 31) / 32;
  const std::vector<float> logits = random_floats(3, kRows * kVocab, 3.0F);
  std::vector<ops::SamplingParams> params(kRows);
  params[0].temperature = 0.0F;
  params[1].top_k = 40;
  params[2].top_p = 0.9F;
  params[3].min_p = 0.05F;
  params[4].repetition_penalty = 1.3F;
  params[5].temperature = 0.7F;
  for (size_t i = 0; i < params.size(); ++i) params[i].seed = 100 + i;
  const std::vector<int32_t> positions = {5, 6, 7, 8, 9, 10};
  const std::vector<int32_t> suppressed = {0, 7, 1002};
  std::vector<uint32_t> seen(kRows * kWords);
  Random random(4);
  for (uint32_t& word : seen) word = static_cast<uint32_t>(random.next() & random.next());
  for (int64_t i = 0; i < kRows; ++i) seen[static_cast<size_t>((i + 1) * kWords - 1)] &= 0x7ffu;

  const DeviceTensor device_logits = device_floats(backend_, {kRows, kVocab}, logits);
  const DeviceTensor device_positions = device_ints(backend_, {kRows}, positions);
  const DeviceTensor device_suppressed = device_ints(backend_, {3}, suppressed);
  const DeviceTensor device_seen(backend_, tensor::DType::kU32, {kRows, kWords},
                                 std::span<const uint32_t>(seen));
  const DeviceTensor ids(backend_, tensor::DType::kI32, {kRows});
  const DeviceTensor scratch(backend_, tensor::DType::kU8,
                             {static_cast<int64_t>(ops::sample_scratch_bytes(kRows, kVocab))});
  backend_.sample({.logits = device_logits.view(),
                   .params = params.data(),
                   .positions = device_positions.view(),
                   .seen = device_seen.view(),
                   .suppressed = device_suppressed.view(),
                   .ids = ids.view(),
                   .scratch = scratch.view().data});
  const std::vector<int32_t> got = ids.ints();
  std::vector<ops::Candidate> candidates(kVocab);
  for (size_t i = 0; i < kRows; ++i) {
    std::vector<float> row(logits.begin() + static_cast<int64_t>(i) * kVocab,
                           logits.begin() + static_cast<int64_t>(i + 1) * kVocab);
    const std::span<uint32_t> row_seen = std::span(seen).subspan(i * kWords, kWords);
    EXPECT_EQ(got[i],
              ops::sample_row(row, params[i], positions[i], suppressed, row_seen, candidates))
        << "row " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Backends, ::testing::ValuesIn(subject_names()),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace markbase::testing
