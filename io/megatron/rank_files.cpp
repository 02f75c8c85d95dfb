#include <algorithm>
#include <map>
#include <optional>

#include "io/megatron/megatron_files.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

constexpr int max_depth = 8;
constexpr std::size_t max_tensors = 1 << 20;

struct Rank {
  int tensor = 0, pipeline = 0;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

/// Removes up to 5 digits from the front of `text`; empty if fewer than `digits`.
std::optional<int> take_number(std::string_view& text, std::size_t digits) {
  std::string_view number = text.substr(0, 5);
  const std::size_t size = number.size();
  const auto value = trireme::take_number<std::uint32_t>(number);
  if (!value || size - number.size() < digits) return std::nullopt;
  text.remove_prefix(size - number.size());
  return static_cast<int>(*value);
}

/// Returns the rank of mp_rank_TT or mp_rank_TT_PPP.
std::optional<Rank> rank_of(std::string_view name) {
  constexpr std::string_view prefix = "mp_rank_";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const auto tensor = take_number(name, 2);
  if (!tensor) return std::nullopt;
  if (name.empty()) return Rank{*tensor, 0};
  if (name.front() != '_') return std::nullopt;
  name.remove_prefix(1);
  const auto pipeline = take_number(name, 3);
  if (!pipeline) return std::nullopt;
  TRIREME_CHECK(name.empty(), DataError, "mp_rank_{:02d}_{:03d}{} is of a model with experts, which are not supported",
                *tensor, *pipeline, shortened(name));
  return Rank{*tensor, *pipeline};
}

std::string file_in(const std::string& folder) {
  for (const char* name : {"model_optim_rng.pt", "model_rng.pt"}) {
    if (is_there(folder + "/" + name)) return folder + "/" + name;
  }
  throw DataError("{} holds neither model_optim_rng.pt nor model_rng.pt", folder);
}

using Tensors = std::map<std::string, StoredTensor>;

/// Adds the tensors of nested dictionaries under names joined by dots. `entries_left` bounds the work: a dictionary may
/// occur in many places.
void flatten(const TorchArchive& archive, const PickleValue& dictionary, const std::string& prefix, int depth,
             std::size_t& entries_left, Tensors& tensors) {
  TRIREME_CHECK(depth < max_depth, DataError, "{}: the dictionaries under '{}' nest deeper than {} levels",
                archive.name(), shortened(prefix), max_depth);
  const PickleValue entries = *dictionary.entries();
  for (std::size_t i = 0; i < entries.size(); i += 2) {
    const PickleValue key = entries.item(i), value = entries.item(i + 1);
    TRIREME_CHECK(key.is(PickleKind::text), DataError, "{}: a name under '{}' is {}", archive.name(), shortened(prefix),
                  key.description());
    TRIREME_CHECK(entries_left > 0 && prefix.size() + key.text().size() < 1000, DataError,
                  "{}: it has more than {} tensors, or names of more than 1000 bytes", archive.name(), max_tensors);
    --entries_left;
    const std::string name = prefix.empty() ? std::string(key.text()) : prefix + "." + std::string(key.text());
    // Stored among the weights, with arbitrary bytes.
    if (exchange::is_megatron_buffer(name)) continue;
    if (!TorchArchive::is_tensor(value) && value.entries()) {
      flatten(archive, value, name, depth + 1, entries_left, tensors);
    } else if (!(value.is(PickleKind::object) && value.calls("collections OrderedDict"))) {  // an empty one
      tensors.insert_or_assign(name, archive.tensor(value, fmt::format("'{}'", shortened(name))));
    }
  }
}

/// Returns the begin and end of the digits in "...layers.N.".
std::optional<std::pair<std::size_t, std::size_t>> layer_number(const std::string& name) {
  constexpr std::string_view layers = "layers.";
  const std::size_t at = name.find(layers);
  if (at == name.npos) return std::nullopt;
  const std::size_t begin = at + layers.size(), end = name.find_first_not_of("0123456789", begin);
  if (end == begin || end == name.npos || name[end] != '.' || end - begin > 6) return std::nullopt;
  return std::pair{begin, end};
}

int layer_of(const std::string& name) {
  const auto place = layer_number(name);
  return place ? std::stoi(name.substr(place->first, place->second - place->first)) : -1;
}

class RankFiles {
 public:
  explicit RankFiles(const std::string& folder) : folder_(folder) {
    for (const std::string& name : names_in(folder)) {
      const auto rank = rank_of(name);
      if (!rank) continue;
      tensor_size_ = std::max(tensor_size_, rank->tensor + 1);
      pipeline_size_ = std::max(pipeline_size_, rank->pipeline + 1);
      files_.emplace(*rank, MappedArchive(file_in(folder + "/" + name)));
    }
    const std::size_t wanted = static_cast<std::size_t>(tensor_size_) * static_cast<std::size_t>(pipeline_size_);
    TRIREME_CHECK(files_.size() == wanted, DataError,
                  "{} has the files of {} ranks, but {} tensor ranks and {} pipeline ranks take {}: some are missing",
                  folder, files_.size(), tensor_size_, pipeline_size_, wanted);
  }

  MegatronCheckpoint open() {
    MegatronCheckpoint result;
    const TorchArchive& first = files_.begin()->second.archive;
    const auto arguments = first.root().find("args");
    TRIREME_CHECK(arguments, DataError, "{} has no 'args', the options of its run: the shape of its model is unknown",
                  first.name());
    read_chunks();
    const bool bert = std::ranges::any_of(joined_, exchange::is_megatron_bert_tensor,
                                          [](const auto& tensor) -> std::string_view { return tensor.first; });
    result.model = megatron_model(*arguments, bert ? model::ModelFamily::bert : model::ModelFamily::gpt, first.name());
    TRIREME_CHECK(result.model.tensor_size == tensor_size_ && result.model.pipeline_size == pipeline_size_, DataError,
                  "{} was saved by {} tensor ranks and {} pipeline ranks, but has the files of {} and {}", folder_,
                  result.model.tensor_size, result.model.pipeline_size, tensor_size_, pipeline_size_);
    result.layout.heads = heads_of_version(first.root(), first.name());
    result.layout.rotary = result.model.rotary;
    result.layout.shards = tensor_size_;
    std::vector<std::shared_ptr<const void>> mappings;
    for (const auto& [rank, file] : files_) mappings.push_back(file.file);
    auto source = std::make_unique<ChunkedSource>(folder_, std::move(mappings));
    for (const auto& [name, shards] : joined_) add(*source, name, shards);
    result.source = std::move(source);
    return result;
  }

 private:
  /// Reads the models of all ranks. Numbers the layers globally: by chunk, then by stage.
  void read_chunks() {
    int first_layer = 0;
    for (int chunk = 0; chunk == 0 || chunk < chunks_; ++chunk) {
      for (int stage = 0; stage < pipeline_size_; ++stage) {
        int layers = 0;
        for (int rank = 0; rank < tensor_size_; ++rank)
          layers = std::max(layers, read_chunk({rank, stage}, chunk, first_layer));
        first_layer += layers;
      }
    }
  }

  /// Returns the number of layers of the chunk.
  int read_chunk(Rank rank, int chunk, int first_layer) {
    const TorchArchive& archive = files_.at(rank).archive;
    std::optional<PickleValue> model = archive.root().find("model");
    if (!model) {
      if (chunk == 0 && rank == Rank{}) {
        while (chunks_ < 1000 && archive.root().find(fmt::format("model{}", chunks_))) ++chunks_;
      }
      model = archive.root().find(fmt::format("model{}", chunk));
    }
    TRIREME_CHECK(model && model->entries(), DataError, "{} has no dictionary 'model' of weights", archive.name());
    Tensors tensors;
    std::size_t entries_left = max_tensors;
    flatten(archive, *model, "", 0, entries_left, tensors);
    int layers = 0;
    for (auto& [name, tensor] : tensors) {
      const int layer = layer_of(name);
      layers = std::max(layers, layer + 1);
      std::string global = name;
      if (const auto place = layer_number(name)) {
        global.replace(place->first, place->second - place->first, std::to_string(first_layer + layer));
      }
      std::vector<StoredTensor>& shards = joined_[global];
      // The last stage of a tied model may repeat the embedding.
      if (std::ssize(shards) == tensor_size_) continue;
      TRIREME_CHECK(std::ssize(shards) == rank.tensor, DataError,
                    "{} has the tensor '{}', which is missing on other tensor ranks", archive.name(), shortened(name));
      shards.push_back(tensor);
    }
    return layers;
  }

  void add(ChunkedSource& source, const std::string& name, const std::vector<StoredTensor>& shards) const {
    const auto fail = [&](const char* problem) {
      throw DataError("{}: the shards of the tensor '{}' {}: files of several checkpoints may be mixed", folder_,
                      shortened(name), problem);
    };
    if (std::ssize(shards) != tensor_size_) fail("are not on all tensor ranks");
    const int dimension = exchange::megatron_split_dimension(name);
    exchange::ForeignTensor tensor{name, shards[0].dtype, shards[0].shape};
    if (dimension >= tensor.shape.rank()) fail("have too few dimensions");
    std::vector<TensorChunk> chunks;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const StoredTensor& shard = shards[i];
      if (shard.dtype != tensor.dtype || !(shard.shape == shards[0].shape)) fail("differ in type or sizes");
      if (dimension < 0 && i > 0) continue;
      Box box = Box::whole(shard.shape);
      if (dimension >= 0) box.offset[dimension] = static_cast<std::int64_t>(i) * shard.shape[dimension];
      chunks.push_back({box, shard.bytes, shard.storage});
    }
    if (dimension >= 0) tensor.shape[dimension] *= tensor_size_;
    source.add(std::move(tensor), std::move(chunks));
  }

  const std::string& folder_;
  int tensor_size_ = 0, pipeline_size_ = 0, chunks_ = 0;
  std::map<Rank, MappedArchive> files_;
  std::map<std::string, std::vector<StoredTensor>> joined_;  // by name; a shard of each tensor rank
};

}  // namespace

bool has_rank_files(const std::string& folder) {
  return std::ranges::any_of(names_in(folder), [](const std::string& name) { return rank_of(name).has_value(); });
}

MegatronCheckpoint open_rank_files(const std::string& folder) { return RankFiles(folder).open(); }

}  // namespace trireme::io
