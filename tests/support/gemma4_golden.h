// The golden models of Gemma 4 (tools/reference/make_tiny_gemma4_golden.py), and how far we are
// from them.
#pragma once

#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "markbase/engine.h"

namespace markbase::testing {

// Where they are: in the repository, or the full product of shapes and formats in the folder that
// MARKBASE_GEMMA4_GOLDENS names.
#ifdef MARKBASE_GOLDEN_DIR
inline std::string gemma4_folder() {
  const char* full = std::getenv("MARKBASE_GEMMA4_GOLDENS");
  return full == nullptr ? std::string(MARKBASE_GOLDEN_DIR) + "/gemma4" : full;
}
#endif
// Their names, in order: every folder in `folder` that holds ids.npy.
std::vector<std::string> gemma4_goldens(const std::string& folder);

struct LogitsFigures {
  double ref_share = 0;     // largest difference of `ref`, per rms of the golden
  double cpu_mean_kl = 0;   // KL(golden || cpu) in nats
  double own_mean_kl = 0;   // the same of the file's own program
  double bound = 0;         // of cpu_mean_kl, that the own program sets
  int64_t rows = 0;         // positions
  int64_t equal_rows = 0;   // where cpu's best id is the golden's
  int64_t clear_rows = 0;   // where the golden's two best are further apart than the bound allows
  int64_t clear_equal = 0;  // those of them where cpu's best id is the golden's
};

struct TraceFigures {
  std::map<std::string, double> share;  // by name: largest difference of `ref`, per rms
  std::vector<std::string> missing;     // in one of trace and golden only, or of another size
  double worst() const;
};

class Gemma4Golden {
 public:
  Gemma4Golden(std::string folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  std::string path(const std::string& file) const;
  bool has(const std::string& file) const;
  bool quantised() const;
  base::Json provenance() const;
  std::vector<int32_t> ids() const;
  // Aborts, with the error in the test's report, where it cannot be loaded.
  Engine load(BackendKind backend) const;
  // [rows, vocab], of all ids or the last only.
  static std::vector<float> logits(Engine& engine, std::span<const int32_t> ids, bool last_only);

  LogitsFigures logits_figures() const;
  // Of a golden that has a trace.
  TraceFigures trace_figures() const;

 private:
  std::string folder_;
  std::string name_;
};

}  // namespace markbase::testing
