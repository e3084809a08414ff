// What the shape and dtype checks refuse. Each case breaks one rule of args that pass.
#include <gtest/gtest.h>

#include <vector>

#include "ops/backend.h"

namespace markbase::ops {
namespace {

using tensor::DType;
using tensor::make_view;
using tensor::TensorView;

float memory_a[4096], memory_b[4096], memory_c[4096];
int32_t ints[64];
uint32_t words[64];

TensorView rows(float* data, int64_t n, int64_t width) {
  return make_view(data, DType::kF32, {n, width});
}
TensorView indices(int64_t n) { return make_view(ints, DType::kI32, {n}); }
TensorView on_device(TensorView view) {
  view.device = tensor::Device::kCuda;
  return view;
}
TensorView with_type(TensorView view, DType dtype) {
  view.dtype = dtype;
  return view;
}

class StubWeight final : public PackedWeight {
 public:
  StubWeight(int64_t num_rows, int64_t num_cols) : PackedWeight(num_rows, num_cols, 0) {}
};

template <class Args, class Break>
void expect_refused(Args args, const Break& break_it) {
  check(args);
  break_it(args);
  EXPECT_DEATH(check(args), "");
}

class CheckDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "fast"; }
};

TEST_F(CheckDeathTest, RmsNorm) {
  const RmsNormArgs good{.x = rows(memory_a, 3, 8),
                         .weight = make_view(memory_b, DType::kF32, {8}),
                         .eps = 1e-6F,
                         .y = rows(memory_c, 3, 8)};
  expect_refused(good, [](auto& a) { a.y = rows(memory_c, 2, 8); });
  expect_refused(good, [](auto& a) { a.x = rows(memory_a, 3, 7); });
  expect_refused(good, [](auto& a) { a.weight.shape[0] = 7; });
  expect_refused(good, [](auto& a) { a.x = with_type(a.x, DType::kBF16); });
  expect_refused(good, [](auto& a) { a.y = on_device(a.y); });
  expect_refused(good, [](auto& a) { a.weight = on_device(a.weight); });
  expect_refused(good, [](auto& a) { a.x.stride[1] = 2; });
  expect_refused(good, [](auto& a) { a.x.stride[0] = 7; });
  expect_refused(good, [](auto& a) { a.x.data = nullptr; });
  expect_refused(good, [](auto& a) { a.eps = -1.0F; });
}

TEST_F(CheckDeathTest, AddRmsNorm) {
  const AddRmsNormArgs good{.x = rows(memory_a, 3, 8),
                            .post_weight = make_view(memory_b, DType::kF32, {8}),
                            .residual = rows(memory_c, 3, 8),
                            .next_weight = make_view(memory_b, DType::kF32, {8}),
                            .eps = 1e-6F,
                            .y = rows(memory_a, 3, 8)};
  expect_refused(good, [](auto& a) { a.residual = a.x; });
  expect_refused(good, [](auto& a) { a.y = a.residual; });
  expect_refused(good, [](auto& a) { a.y = {}; });
  expect_refused(good, [](auto& a) { a.y = rows(memory_a, 3, 9); });
}

TEST_F(CheckDeathTest, Elementwise) {
  const TensorView a8 = rows(memory_a, 3, 8);
  const TensorView b8 = rows(memory_b, 3, 8);
  const TensorView c8 = rows(memory_c, 3, 8);
  expect_refused(AddArgs{a8, b8}, [](auto& a) { a.y = rows(memory_b, 3, 9); });
  expect_refused(GeluMulArgs{a8, b8, c8}, [](auto& a) { a.up = rows(memory_b, 4, 8); });
  expect_refused(SoftCapArgs{a8, 30.0F}, [](auto& a) { a.cap = 0.0F; });
  expect_refused(ScaleArgs{a8, 2.0F}, [](auto& a) { a.x.rank = 1; });
  const GatherRowsArgs gather{a8, indices(2), rows(memory_b, 2, 8)};
  expect_refused(gather, [](auto& a) { a.rows = indices(3); });
  expect_refused(gather, [](auto& a) { a.y = rows(memory_b, 2, 7); });
  expect_refused(gather, [](auto& a) { a.y = rows(memory_a, 2, 8); });
}

TEST_F(CheckDeathTest, EmbeddingAndLinear) {
  const StubWeight weight(5, 8);
  const StubWeight narrow(5, 7);
  const EmbeddingArgs embedding{indices(3), &weight, 1.0F, rows(memory_a, 3, 8)};
  expect_refused(embedding, [](auto& a) { a.table = nullptr; });
  expect_refused(embedding, [](auto& a) { a.ids = indices(2); });
  expect_refused(embedding, [&](auto& a) { a.table = &narrow; });

  LinearTarget target{&weight, rows(memory_b, 3, 5)};
  const LinearArgs linear{rows(memory_a, 3, 8), std::span<const LinearTarget>(&target, 1)};
  check(linear);
  const LinearTarget good = target;
  for (const LinearTarget& broken :
       {LinearTarget{nullptr, good.y}, LinearTarget{&narrow, good.y},
        LinearTarget{&weight, rows(memory_b, 3, 6)}, LinearTarget{&weight, rows(memory_b, 2, 5)},
        LinearTarget{&weight, rows(memory_a, 3, 5)}, LinearTarget{&weight, on_device(good.y)}}) {
    target = broken;
    EXPECT_DEATH(check(linear), "");
  }
  const GatedLinearArgs gated{rows(memory_a, 3, 8), rows(memory_c, 3, 8), good};
  expect_refused(gated, [](auto& a) { a.up = rows(memory_c, 3, 7); });
}

TEST_F(CheckDeathTest, Rope) {
  const TensorView x = make_view(memory_a, DType::kF32, {3, 2, 8});
  const RopeArgs good{x, indices(3), rows(memory_b, 16, 8)};
  expect_refused(good, [](auto& a) { a.table_rows = indices(2); });
  expect_refused(good, [](auto& a) { a.table = rows(memory_b, 16, 10); });
  expect_refused(good, [](auto& a) { a.table = rows(memory_b, 16, 5); });
  expect_refused(good, [](auto& a) { a.x.stride[1] = 9; });
  const RopeArgs odd{make_view(memory_a, DType::kF32, {3, 2, 7}), indices(3),
                     rows(memory_b, 16, 7)};
  EXPECT_DEATH(check(odd), "even");
  RopeArgs part = good;  // the first two pairs alone
  part.table = rows(memory_b, 16, 4);
  check(part);
  const RopeTableArgs table{indices(3), make_view(memory_a, DType::kF32, {4}),
                            rows(memory_b, 3, 8)};
  expect_refused(table, [](auto& a) { a.positions = indices(2); });
  expect_refused(table, [](auto& a) { a.inv_freq = make_view(memory_a, DType::kF32, {8}); });
  expect_refused(table, [](auto& a) { a.table = rows(memory_b, 3, 7); });
  const NormRopeArgs normed{x, make_view(memory_c, DType::kF32, {8}), 1e-6F, indices(3),
                            rows(memory_b, 16, 8)};
  expect_refused(normed, [](auto& a) { a.weight.shape[0] = 16; });
}

TEST_F(CheckDeathTest, CacheAndAttention) {
  const TensorView kv = make_view(memory_a, DType::kF32, {3, 2, 8});
  const KvView cache{{KvType::kF32, 2, 8}, memory_b, make_view(ints, DType::kI32, {1, 4})};
  const KvWriteArgs write{kv, kv, indices(3), indices(3), cache, indices(1)};
  expect_refused(write, [](auto& a) { a.v.shape[1] = 1; });
  expect_refused(write, [](auto& a) { a.cache.layout.head_dim = 16; });
  expect_refused(write, [](auto& a) { a.cache.blocks = nullptr; });
  expect_refused(write, [](auto& a) { a.overflow = indices(2); });
  expect_refused(write, [](auto& a) { a.sequences = indices(2); });
  const AttentionArgs attention{
      make_view(memory_a, DType::kF32, {3, 4, 8}), indices(3), indices(3), cache, 1.0F, 0,
      make_view(memory_c, DType::kF32, {3, 4, 8})};
  expect_refused(attention, [](auto& a) { a.cache.layout.num_kv_heads = 3; });
  expect_refused(attention, [](auto& a) { a.window = -1; });
  expect_refused(attention, [](auto& a) { a.positions = indices(4); });
  expect_refused(attention, [](auto& a) { a.y.shape[1] = 2; });
  EXPECT_EQ(kv_type_name(KvType::kF16), "f16");
  EXPECT_EQ(kv_type_name(KvType::kBF16), "bf16");
  EXPECT_EQ(kv_type_name(KvType::kF32), "f32");
  EXPECT_EQ(kv_type_name(KvType::kQ8), "q8");
}

TEST_F(CheckDeathTest, Sample) {
  const SamplingParams params[2];
  const SampleArgs good{rows(memory_a, 2, 40),
                        params,
                        indices(2),
                        make_view(words, DType::kU32, {2, 2}),
                        {},
                        indices(2),
                        memory_b};
  expect_refused(good, [](auto& a) { a.params = nullptr; });
  expect_refused(good, [](auto& a) { a.seen.shape[1] = 1; });
  expect_refused(good, [](auto& a) { a.ids = indices(1); });
  expect_refused(good, [](auto& a) { a.positions = indices(3); });
  expect_refused(good, [](auto& a) { a.suppressed = make_view(words, DType::kU32, {2}); });
  expect_refused(good, [](auto& a) { a.scratch = nullptr; });
}

TEST_F(CheckDeathTest, TokenLogprobs) {
  const TokenLogprobsArgs good{.logits = rows(memory_a, 2, 40),
                               .ids = indices(2),
                               .num_top = indices(2),
                               .chosen_logprob = make_view(memory_b, DType::kF32, {2}),
                               .top_ids = make_view(ints, DType::kI32, {2, 3}),
                               .top_logprobs = rows(memory_c, 2, 3)};
  expect_refused(good, [](auto& a) { a.logits = rows(memory_a, 2, 0); });
  expect_refused(good, [](auto& a) { a.logits = with_type(a.logits, DType::kBF16); });
  expect_refused(good, [](auto& a) { a.ids = indices(1); });
  expect_refused(good, [](auto& a) { a.num_top = indices(3); });
  expect_refused(good, [](auto& a) { a.chosen_logprob.shape[0] = 1; });
  expect_refused(good, [](auto& a) { a.top_ids.shape[0] = 1; });
  expect_refused(good, [](auto& a) { a.top_logprobs = rows(memory_c, 2, 4); });
  expect_refused(good, [](auto& a) { a.top_logprobs = on_device(a.top_logprobs); });
}

// Steps may be empty.
TEST(Check, NoRowsAreFine) {
  check(AddArgs{rows(nullptr, 0, 8), rows(nullptr, 0, 8)});
  const StubWeight weight(5, 8);
  const LinearTarget target{&weight, rows(nullptr, 0, 5)};
  check(LinearArgs{rows(nullptr, 0, 8), std::span<const LinearTarget>(&target, 1)});
}

}  // namespace
}  // namespace markbase::ops
