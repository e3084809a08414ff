#include "support/random.h"

namespace markbase::testing {

uint64_t Random::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

int64_t Random::below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }

float Random::uniform() { return static_cast<float>(next() >> 40) * 0x1p-24F; }

float Random::normal() {
  float sum = -6.0F;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

std::vector<float> random_floats(uint64_t seed, int64_t n, float scale, int64_t outlier_every) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) {
    v = random.normal() * scale;
    if (outlier_every > 0 && random.below(outlier_every) == 0) v *= 20.0F;
  }
  return values;
}

}  // namespace markbase::testing
