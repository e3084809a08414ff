// Cases of ops for the parity tests: fixed inputs, a way to run any of their rows on a backend, and
// how far a result may lie from the reference.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace markbase::testing {

// Half the distance from 1 to the next float32: the relative error of one rounding.
inline constexpr double kHalfUlp = 0x1p-24;

class OpCase {
 public:
  virtual ~OpCase() = default;

  virtual std::string name() const = 0;
  virtual int64_t num_rows() const = 0;
  // The outputs of rows [begin, begin + n), row after row.
  virtual std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const = 0;
  // The same by the composed form; only for fused ops.
  virtual bool fused() const { return false; }
  virtual std::vector<float> run_composed(ops::Backend& backend, int64_t begin, int64_t n) const {
    return run(backend, begin, n);
  }
  // Largest allowed |got - expected| of each output of all rows, derived from the arithmetic that
  // the backends promise; 0 where the bits must be equal.
  virtual std::vector<double> bound(std::span<const float> expected) const = 0;
};

using OpCases = std::vector<std::unique_ptr<OpCase>>;

void add_row_cases(OpCases& cases);        // embedding, norms, elementwise
void add_rope_cases(OpCases& cases);       // rope_table, rope, norm_rope
void add_linear_cases(OpCases& cases);     // products, gated products
void add_attention_cases(OpCases& cases);  // kv_write and attention
void add_expert_cases(OpCases& cases);     // routing, experts
void add_logprobs_cases(OpCases& cases);   // log probabilities
OpCases all_op_cases();

// What a product with the weight may be off by, for x: [T, cols], where x itself is off by x_error
// (empty: not at all). Outputs row after row.
std::vector<double> linear_bound(const quant::WeightView& weight, std::span<const double> x,
                                 std::span<const double> x_error);

// Compares and explains: empty when every element is within its bound; else the worst element with
// the share of the bound it used.
std::string compare(std::span<const float> got, std::span<const float> expected,
                    std::span<const double> bound);
// The largest share of the bound that any element uses (0 where all are equal).
double worst_share(std::span<const float> got, std::span<const float> expected,
                   std::span<const double> bound);
// Empty when the bits are equal (NaN equals NaN); else the first difference.
std::string compare_bits(std::span<const float> got, std::span<const float> expected);

}  // namespace markbase::testing
