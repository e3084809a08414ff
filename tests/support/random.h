// Random test data, the same on every machine for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace markbase::testing {

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // In [0, n).
  int64_t below(int64_t n);
  // In [0, 1), 24 bits.
  float uniform();
  // Near the normal distribution (a sum of uniforms, so no library function is involved).
  float normal();

 private:
  uint64_t state_;
};

// n values of normal(), times scale; about one in outlier_every (0: none) is 20 times larger, as
// activations have them.
std::vector<float> random_floats(uint64_t seed, int64_t n, float scale = 1.0F,
                                 int64_t outlier_every = 0);

}  // namespace markbase::testing
