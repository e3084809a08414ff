// What a GGUF says by its tensors alone.
#pragma once

#include "formats/weight_source.h"
#include "markbase/result.h"
#include "model/config.h"

namespace markbase::model {

// Vocabulary sizes by the tables' rows and, in Gemma 4: full layers without attn_v use their keys
// as values, and rope_freqs (divisors of the angles: ones for the pairs that turn, then numbers so
// large that the others stand still) gives the part of a head that turns in full layers.
Result<void> complete_from_tensors(const formats::WeightSource& source, std::string_view where,
                                   TextConfig* config);

}  // namespace markbase::model
