#include "runtime/tools/weight_groups.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

namespace markbase::tools {
namespace {

using model::WeightId;

enum class Group : uint8_t {
  kEmbedding,
  kHead,
  kPerLayerEmbeddings,
  kAttention,
  kMlp,
  kRouter,
  kExperts,
  kNorms,
};
constexpr std::array<const char*, 8> kGroupNames = {
    "embedding", "head", "per-layer embeddings", "attention", "mlp", "router", "experts", "norms"};

Group group_of(const model::MappedWeight& weight) {
  switch (weight.id) {
    case WeightId::kEmbedTokens:
      return Group::kEmbedding;
    case WeightId::kLmHead:
      return Group::kHead;
    case WeightId::kEmbedTokensPerLayer:
    case WeightId::kPerLayerModelProjection:
    case WeightId::kPerLayerInputGate:
    case WeightId::kPerLayerProjection:
      return Group::kPerLayerEmbeddings;
    case WeightId::kQProj:
    case WeightId::kKProj:
    case WeightId::kVProj:
    case WeightId::kOProj:
      return Group::kAttention;
    case WeightId::kGateProj:
    case WeightId::kUpProj:
    case WeightId::kDownProj:
      return Group::kMlp;
    case WeightId::kRouterProj:
    case WeightId::kRouterScale:
    case WeightId::kPerExpertScale:
      return Group::kRouter;
    case WeightId::kExpertGateProj:
    case WeightId::kExpertUpProj:
    case WeightId::kExpertDownProj:
      return Group::kExperts;
    default:
      return Group::kNorms;
  }
}

uint64_t bytes_of(const quant::WeightView& view) {
  return view.data.size() + view.scales.size() + view.biases.size();
}

// Bytes of the file that one token needs of a weight.
double read_per_token(const model::TextConfig& config, const model::WeightMap& map,
                      const model::MappedWeight& weight) {
  const auto bytes = static_cast<double>(bytes_of(weight.view));
  const bool table = weight.id == WeightId::kEmbedTokensPerLayer ||
                     (weight.id == WeightId::kEmbedTokens && !map.tied_head);
  if (table) return bytes / static_cast<double>(weight.view.rows);
  if (weight.expert < 0) return bytes;
  return bytes * static_cast<double>(config.top_k_experts) /
         static_cast<double>(config.num_experts);
}

struct Sum {
  std::set<std::string> tensors;
  std::set<std::string> formats;
  int64_t weights = 0;
  uint64_t bytes = 0;
  double bytes_per_token = 0;
};

}  // namespace

std::string format_text(const quant::WeightView& view) {
  const std::string_view name = quant::format_name(view.format);
  if (view.format != quant::Format::kAffine) return std::string(name);
  return fmt::format("{} {}-bit, groups of {}", name, view.bits, view.group_size);
}

base::Json weight_groups_json(const model::TextConfig& config, const model::WeightMap& map) {
  std::array<Sum, kGroupNames.size()> sums;
  for (const model::MappedWeight& weight : map.weights) {
    Sum& sum = sums[static_cast<size_t>(group_of(weight))];
    sum.tensors.insert(weight.source_name);
    sum.formats.insert(format_text(weight.view));
    sum.weights += weight.view.rows * weight.view.cols;
    sum.bytes += bytes_of(weight.view);
    sum.bytes_per_token += read_per_token(config, map, weight);
  }
  base::Json out = base::Json::array();
  for (size_t i = 0; i < sums.size(); ++i) {
    const Sum& sum = sums[i];
    if (sum.weights == 0) continue;
    out.push_back({{"group", kGroupNames[i]},
                   {"tensors", sum.tensors.size()},
                   {"weights", sum.weights},
                   {"bytes", sum.bytes},
                   {"bits_per_weight",
                    8.0 * static_cast<double>(sum.bytes) / static_cast<double>(sum.weights)},
                   {"bytes_per_token", static_cast<uint64_t>(sum.bytes_per_token)},
                   {"formats", sum.formats}});
  }
  return out;
}

}  // namespace markbase::tools
