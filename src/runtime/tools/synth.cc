// synth: random weights in the shape of a model, streamed into the files of a format.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/guard.h"
#include "base/thread_pool.h"
#include "formats/file_writer.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/safetensors/safetensors_writer.h"
#include "markbase/tools.h"
#include "quant/random_weights.h"
#include "runtime/tools/synth_format.h"
#include "runtime/tools/synth_shape.h"
#include "runtime/tools/synth_vocabulary.h"

namespace markbase::tools {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;  // one seed each
constexpr uint64_t kBufferPieces = 16;
constexpr uint64_t kHfShardBytes = 50'000'000'000;      // what transformers writes by default
constexpr uint64_t kMlxShardBytes = uint64_t{5} << 30;  // what mlx-lm writes
constexpr uint64_t kRoomBytes = uint64_t{64} << 20;     // beside the weights: tokenizer, headers

uint64_t total_bytes(std::span<const StoredTensor> tensors) {
  uint64_t sum = 0;
  for (const StoredTensor& tensor : tensors) sum += tensor.num_bytes;
  return sum;
}

// Bytes that may not be split: a block, or a value.
uint64_t unit_bytes(const StoredTensor& tensor) {
  using Fill = StoredTensor::Fill;
  if (tensor.fill == Fill::kFloats || tensor.fill == Fill::kBlocks) {
    return static_cast<uint64_t>(quant::block_shape(tensor.format).bytes);
  }
  return 4;
}

void fill_piece(const StoredTensor& tensor, uint64_t seed, uint64_t begin,
                std::span<std::byte> out) {
  using Fill = StoredTensor::Fill;
  switch (tensor.fill) {
    case Fill::kFloats:
      return quant::fill_random_floats(tensor.format, seed, tensor.center, tensor.spread, out);
    case Fill::kBlocks:
      return quant::fill_random_blocks(tensor.format, seed, tensor.spread, out);
    case Fill::kCodes:
      return quant::fill_random_codes(seed, out);
    case Fill::kScales:
    case Fill::kBiases: {
      // A pair is made together, from the seed they share.
      std::vector<std::byte> other(out.size());
      const bool scales = tensor.fill == Fill::kScales;
      return quant::fill_random_affine_scales(tensor.bits, seed, tensor.spread,
                                              scales ? out : other, scales ? other : out);
    }
    case Fill::kValues:
      std::memcpy(out.data(), std::as_bytes(std::span(tensor.values)).data() + begin, out.size());
      return;
  }
}

// Makes the bytes of tensors, piece by piece on all threads, and hands them to a writer in order.
class Stream {
 public:
  Stream(const SynthOptions& options, uint64_t total)
      : options_(options),
        total_(total),
        pool_(options.num_threads > 0 ? options.num_threads : base::default_num_threads()) {}

  template <class Writer>
  Result<void> write(const StoredTensor& tensor, Writer& writer) {
    const uint64_t unit = unit_bytes(tensor);
    const uint64_t piece = std::max<uint64_t>(1, kPieceBytes / unit) * unit;
    buffer_.resize(static_cast<size_t>(std::min(piece * kBufferPieces, tensor.num_bytes)));
    for (uint64_t begin = 0; begin < tensor.num_bytes; begin += buffer_.size()) {
      if (options_.cancelled && options_.cancelled()) {
        return Error{ErrorCode::kCancelled, "interrupted"};
      }
      const uint64_t count = std::min<uint64_t>(buffer_.size(), tensor.num_bytes - begin);
      const auto num_pieces = static_cast<int64_t>((count + piece - 1) / piece);
      pool_.run(num_pieces, [&](int64_t idx, int) {
        const uint64_t at = static_cast<uint64_t>(idx) * piece;
        const uint64_t seed =
            quant::part_seed(options_.seed, tensor.seed_name, (begin + at) / piece);
        fill_piece(tensor, seed, begin + at,
                   std::span(buffer_).subspan(static_cast<size_t>(at),
                                              static_cast<size_t>(std::min(piece, count - at))));
      });
      MB_TRY(writer.write(std::span<const std::byte>(buffer_).first(static_cast<size_t>(count))));
      done_ += count;
      if (options_.progress) options_.progress({"writing", done_, total_});
    }
    return {};
  }

 private:
  const SynthOptions& options_;
  uint64_t total_;
  uint64_t done_ = 0;
  base::ThreadPool pool_;
  std::vector<std::byte> buffer_;
};

Result<void> write_text(const std::string& path, std::string_view text) {
  MB_ASSIGN(formats::FileWriter writer, formats::FileWriter::create(path));
  MB_TRY(writer.write(text));
  return writer.finish();
}

// Runs of tensors of at most shard_bytes each (a larger tensor has a shard of its own).
std::vector<std::span<const StoredTensor>> shards_of(std::span<const StoredTensor> tensors,
                                                     uint64_t shard_bytes) {
  std::vector<std::span<const StoredTensor>> shards;
  size_t begin = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i > begin && bytes + tensors[i].num_bytes > shard_bytes) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += tensors[i].num_bytes;
  }
  shards.push_back(tensors.subspan(begin));
  return shards;
}

Result<void> write_shard(const std::string& path, const char* metadata_format,
                         std::span<const StoredTensor> tensors, Stream* stream) {
  const std::map<std::string, std::string> metadata = {{"format", metadata_format}};
  formats::SafetensorsWriter writer(metadata);
  for (const StoredTensor& tensor : tensors) {
    writer.add_tensor(tensor.name, tensor.shape, tensor.dtype);
  }
  MB_TRY(writer.open(path));
  for (const StoredTensor& tensor : tensors) MB_TRY(stream->write(tensor, writer));
  return writer.finish();
}

Result<void> write_weights(const fs::path& folder, const SynthFormat& format,
                           const SynthOptions& options, std::span<const StoredTensor> tensors) {
  const bool mlx = format.container == SynthContainer::kMlx;
  uint64_t shard_bytes = mlx ? kMlxShardBytes : kHfShardBytes;
  if (options.max_shard_bytes > 0) shard_bytes = options.max_shard_bytes;
  const auto shards = shards_of(tensors, shard_bytes);
  Stream stream(options, total_bytes(tensors));
  base::Json weight_map = base::Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    MB_TRY(write_shard((folder / name).string(), mlx ? "mlx" : "pt", shards[i], &stream));
    for (const StoredTensor& tensor : shards[i]) weight_map[tensor.name] = name;
  }
  if (shards.size() == 1 && !mlx) return {};
  const base::Json index = {{"metadata", {{"total_size", total_bytes(tensors)}}},
                            {"weight_map", std::move(weight_map)}};
  return write_text((folder / "model.safetensors.index.json").string(),
                    base::dump_json(index, 2) + "\n");
}

base::Json generation_config(const SynthShape& shape, const SynthVocabulary& vocabulary) {
  base::Json config = {{"bos_token_id", 2},  {"eos_token_id", {1, vocabulary.end_of_turn_id}},
                       {"pad_token_id", 0},  {"do_sample", true},
                       {"temperature", 1.0}, {"top_k", 64},
                       {"top_p", 0.95}};
  // Of the unified model: the ends of a sound and of a picture.
  constexpr int64_t kUsualVocabulary = 262144;
  if (shape.unified && shape.vocab_size == kUsualVocabulary) {
    config["suppress_tokens"] = {258883, 258882};
  }
  return config;
}

Result<void> write_directory(const fs::path& folder, const SynthShape& shape,
                             const SynthFormat& format, const SynthOptions& options) {
  const SynthVocabulary vocabulary = synth_vocabulary(shape.vocab_size, shape.gemma4);
  base::Json config = synth_hf_config(shape);
  if (const base::Json block = mlx_quantization_block(shape, format); !block.is_null()) {
    config["quantization"] = block;
    config["quantization_config"] = block;
  }
  const auto file = [&](const char* name) { return (folder / name).string(); };
  MB_TRY(write_text(file("config.json"), base::dump_json(config, 2) + "\n"));
  MB_TRY(write_text(file("generation_config.json"),
                    base::dump_json(generation_config(shape, vocabulary), 2) + "\n"));
  MB_TRY(write_text(file("tokenizer.json"), synth_tokenizer_json(vocabulary)));
  MB_TRY(write_text(file("tokenizer_config.json"), synth_tokenizer_config(shape.gemma4)));
  return write_weights(folder, format, options, stored_tensors(shape, format));
}

// A JSON value of synth_gguf_keys as the type it stands for.
void add_key(formats::GgufWriter* writer, const std::string& key, const base::Json& value) {
  if (value.is_boolean()) return writer->add(key, value.get<bool>());
  if (value.is_number_float()) return writer->add(key, value.get<float>());
  if (value.is_number()) return writer->add(key, value.get<uint32_t>());
  if (value.is_array() && value[0].is_boolean()) {
    return writer->add_array(key, value.get<std::vector<bool>>());
  }
  writer->add_array(key, value.get<std::vector<int32_t>>());
}

void add_tokenizer(formats::GgufWriter* writer, const SynthShape& shape) {
  const SynthVocabulary v = synth_vocabulary(shape.vocab_size, shape.gemma4);
  writer->add("tokenizer.ggml.model", std::string(shape.gemma4 ? "gemma4" : "llama"));
  if (!shape.gemma4) writer->add("tokenizer.ggml.pre", std::string("default"));
  writer->add_array("tokenizer.ggml.tokens", v.pieces);
  writer->add_array("tokenizer.ggml.scores", v.scores);
  writer->add_array("tokenizer.ggml.token_type", v.types);
  if (shape.gemma4) writer->add_array("tokenizer.ggml.merges", v.merges);
  writer->add("tokenizer.ggml.bos_token_id", uint32_t{2});
  writer->add("tokenizer.ggml.eos_token_id", uint32_t{1});
  writer->add("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(v.end_of_turn_id));
  writer->add("tokenizer.ggml.unknown_token_id", uint32_t{3});
  writer->add("tokenizer.ggml.padding_token_id", uint32_t{0});
  writer->add("tokenizer.ggml.mask_token_id", uint32_t{4});
  writer->add("tokenizer.ggml.add_bos_token", true);
  writer->add("tokenizer.ggml.add_space_prefix", false);
}

Result<void> write_gguf(const std::string& path, const SynthShape& shape, const SynthFormat& format,
                        const SynthOptions& options) {
  formats::GgufWriter writer;
  writer.add("general.architecture", std::string(shape.gemma4 ? "gemma4" : "gemma3"));
  writer.add("general.type", std::string("model"));
  writer.add("general.name", fmt::format("synthetic {}", shape.name));
  writer.add("general.file_type", format.file_type);
  writer.add("general.quantization_version", uint32_t{2});
  const base::Json keys = synth_gguf_keys(shape);
  for (const auto& [key, value] : keys.items()) add_key(&writer, key, value);
  add_tokenizer(&writer, shape);
  const std::vector<StoredTensor> tensors = stored_tensors(shape, format);
  for (const StoredTensor& tensor : tensors) {
    writer.add_tensor(tensor.name, tensor.shape, tensor.ggml_type);
  }
  Stream stream(options, total_bytes(tensors));
  MB_TRY(writer.open(path));
  for (const StoredTensor& tensor : tensors) MB_TRY(stream.write(tensor, writer));
  return writer.finish();
}

// Nothing is overwritten, and a disk that is too small is noticed before it is filled.
Result<void> check_target(const fs::path& out, uint64_t num_bytes) {
  std::error_code error;
  const auto taken = [&](const fs::path& path) {
    return fs::exists(fs::symlink_status(path, error));
  };
  if (taken(out)) {
    return base::failed("{}: expected a name that is free, got one that exists", out.string());
  }
  const std::string partial = out.string() + ".partial";
  if (taken(partial)) {
    return base::failed("{}: a run that did not finish left this behind; remove it first", partial);
  }
  const fs::path parent = out.has_parent_path() ? out.parent_path() : fs::path(".");
  if (!fs::is_directory(parent, error)) {
    return base::failed("{}: expected a folder to write to, got none", parent.string());
  }
  const fs::space_info space = fs::space(parent, error);
  if (!error && space.available < num_bytes + kRoomBytes) {
    return base::failed("{}: {} MB are needed, {} MB are free", parent.string(),
                        (num_bytes + kRoomBytes) / 1'000'000, space.available / 1'000'000);
  }
  return {};
}

Result<void> write_directory_whole(const fs::path& out, const SynthShape& shape,
                                   const SynthFormat& format, const SynthOptions& options) {
  const fs::path partial = out.string() + ".partial";
  std::error_code error;
  if (!fs::create_directory(partial, error)) {
    return base::failed("{}: cannot be created: {}", partial.string(), error.message());
  }
  Result<void> written = write_directory(partial, shape, format, options);
  if (written.ok()) {
    fs::rename(partial, out, error);
    if (error) written = base::failed("{}: cannot be finished: {}", out.string(), error.message());
  }
  if (!written.ok()) fs::remove_all(partial, error);
  return written;
}

Result<std::string> synth_unguarded(const SynthOptions& options) {
  MB_ASSIGN(const SynthShape shape, synth_shape(options.size, options.num_layers));
  MB_ASSIGN(const SynthFormat format, synth_format(options.format));
  // "OUT/" means the same as "OUT".
  const fs::path given(options.out);
  const fs::path out = given.has_filename() ? given : given.parent_path();
  if (out.empty()) return base::usage_error("expected a path to write to, got nothing");
  const std::vector<StoredTensor> tensors = stored_tensors(shape, format);
  MB_TRY(check_target(out, total_bytes(tensors)));
  if (format.container == SynthContainer::kGguf) {
    MB_TRY(write_gguf(out.string(), shape, format, options));
  } else {
    MB_TRY(write_directory_whole(out, shape, format, options));
  }
  uint64_t parameters = 0;
  for (const SynthTensor& tensor : synth_tensors(shape)) {
    uint64_t count = tensor.dead ? 0 : 1;
    for (const int64_t size : tensor.shape) count *= static_cast<uint64_t>(size);
    parameters += count;
  }
  return base::dump_json(base::Json{{"path", out.string()},
                                    {"size", shape.name},
                                    {"format", format.name},
                                    {"layers", shape.num_hidden_layers},
                                    {"parameters", parameters},
                                    {"tensors", tensors.size()},
                                    {"bytes", total_bytes(tensors)},
                                    {"seed", options.seed}});
}

}  // namespace

Result<std::string> synth_json(const SynthOptions& options) {
  return base::guarded("synth_json", [&] { return synth_unguarded(options); });
}

std::vector<std::string> synth_size_names() { return synth_sizes(); }
std::string synth_format_names() { return synth_formats(); }

}  // namespace markbase::tools
