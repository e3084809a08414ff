#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {

void RefBackend::sample(const ops::SampleArgs& args) {
  check(args);
  const auto vocab = static_cast<size_t>(args.logits.dim(1));
  const auto num_words = static_cast<size_t>(args.seen.dim(1));
  const std::span<const int32_t> suppressed(
      args.suppressed.as<const int32_t>(),
      args.suppressed.data == nullptr ? 0 : static_cast<size_t>(args.suppressed.dim(0)));
  pool_.run(args.logits.dim(0), [&](int64_t i, int) {
    const std::span<uint32_t> seen(args.seen.as<uint32_t>() + i * args.seen.stride[0], num_words);
    ops::Candidate* scratch =
        static_cast<ops::Candidate*>(args.scratch) + static_cast<size_t>(i) * vocab;
    args.ids.as<int32_t>()[i] =
        ops::sample_row({args.logits.row(i), vocab}, args.params[i],
                        args.positions.as<int32_t>()[i], suppressed, seen, {scratch, vocab});
  });
}

}  // namespace markbase::backends
