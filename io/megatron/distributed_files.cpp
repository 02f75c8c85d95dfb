#include <algorithm>
#include <map>
#include <optional>

#include "io/megatron/megatron_files.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

constexpr const char* metadata_name = "/.metadata";
constexpr const char* common_name = "/common.pt";
constexpr std::string_view common_state = "common_state/shard_0_1";
constexpr std::size_t max_name_bytes = 1000;
constexpr std::string_view metadata_module = "torch.distributed.checkpoint.metadata ";

/// Returns whether an entry belongs to the optimizer or to the state of the run.
bool is_state(std::string_view name) {
  constexpr std::string_view prefixes[] = {"optimizer", "chained_", "rng_state", "rerun_state_machine", "opt_param_"};
  return exchange::is_megatron_buffer(name) ||
         std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// Tensor of the checkpoint, and its parts found so far.
struct DistributedTensor {
  Shape shape;
  std::optional<DType> dtype;
  std::vector<TensorChunk> chunks;  // stated by the metadata, without bytes
  std::vector<TensorChunk> found = {};
};

class DistributedFiles {
 public:
  explicit DistributedFiles(const std::string& folder) : folder_(folder) {}

  MegatronCheckpoint open() {
    MegatronCheckpoint result;
    read_metadata();
    result.model = read_options();
    result.layout.rotary = result.model.rotary;
    layers_ = result.model.config.layers;
    join_gates();
    std::vector<std::shared_ptr<const void>> mappings;
    for (const auto& [name, file] : files_) mappings.push_back(file);
    auto source = std::make_unique<ChunkedSource>(folder_, std::move(mappings));
    for (auto& [name, tensor] : tensors_) add(*source, name, tensor);
    result.source = std::move(source);
    return result;
  }

 private:
  void require(bool holds, const char* problem) const {
    TRIREME_CHECK(holds, DataError, "{}{}: {}: it is damaged, or of an unknown version", folder_, metadata_name,
                  problem);
  }
  std::string class_name(const char* name) const { return std::string(metadata_module) + name; }
  PickleValue member(const PickleValue& object, std::string_view name) const {
    const auto found = object.find(name);
    TRIREME_CHECK(found, DataError, "{}{}: {} has no '{}'", folder_, metadata_name, object.description(), name);
    return *found;
  }

  /// Reads the options of the run: from common.pt, or since core 0.19 from an entry among the tensors.
  MegatronModel read_options() const {
    const std::string path = folder_ + common_name;
    if (is_there(path)) {
      const MappedArchive common(path);
      return model_of(common.archive.root(), path);
    }
    TRIREME_CHECK(common_, DataError, "{} has neither common.pt nor 'common_state', which holds the options of the run",
                  folder_);
    const PickleValue saved = common_->root();
    TRIREME_CHECK(saved.is(PickleKind::list) && saved.size() == 1, DataError, "{}: 'common_state' is {}, not a list",
                  common_->name(), saved.description());
    return model_of(saved.item(0), common_->name());
  }
  MegatronModel model_of(const PickleValue& common, const std::string& path) const {
    const auto arguments = common.find("args");
    TRIREME_CHECK(arguments, DataError, "{} has no 'args', the options of its run: the shape of its model is unknown",
                  path);
    const bool bert = std::ranges::any_of(tensors_, exchange::is_megatron_bert_tensor,
                                          [](const auto& tensor) -> std::string_view { return tensor.first; });
    return megatron_model(*arguments, bert ? model::ModelFamily::bert : model::ModelFamily::gpt, path);
  }

  void read_metadata() {
    const std::string path = folder_ + metadata_name;
    const std::shared_ptr<const MappedFile> file = map_file(path);
    const PickleDocument document({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()}, path);
    require(document.root().calls(class_name("Metadata")), "it does not describe a torch checkpoint");
    const PickleValue tensors = member(document.root(), "state_dict_metadata");
    require(tensors.is(PickleKind::dict), "its tensors are not a dictionary");
    for (std::size_t i = 0; i < tensors.size(); i += 2) {
      const PickleValue key = tensors.item(i), value = tensors.item(i + 1);
      require(key.is(PickleKind::text) && key.text().size() < max_name_bytes, "a name is none");
      if (is_state(key.text()) || value.calls(class_name("BytesStorageMetadata"))) continue;
      read_tensor(std::string(key.text()), value);
    }
    const PickleValue places = member(document.root(), "storage_data");
    require(places.is(PickleKind::dict), "its storage locations are not a dictionary");
    for (std::size_t i = 0; i < places.size(); i += 2) read_place(places.item(i), places.item(i + 1));
  }

  void read_tensor(const std::string& name, const PickleValue& value) {
    const std::string path = folder_ + metadata_name, what = fmt::format("'{}'", shortened(name));
    TRIREME_CHECK(value.calls(class_name("TensorStorageMetadata")), DataError, "{}: {} is {}, not a tensor", path, what,
                  value.description());
    DistributedTensor tensor{shape_of(member(value, "size"), path, what), {}, {}};
    size_bytes_of(tensor.shape, DType::fp64, path, what);
    const PickleValue chunks = member(value, "chunks");
    require(chunks.is(PickleKind::list), "the parts of a tensor are not a list");
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const PickleValue chunk = chunks.item(i);
      tensor.chunks.push_back(
          {{shape_of(member(chunk, "offsets"), path, what), shape_of(member(chunk, "sizes"), path, what)}, {}});
    }
    require(tensors_.emplace(name, std::move(tensor)).second, "a tensor is listed twice");
  }

  /// Finds the bytes of a part: a torch.save archive inside a file.
  void read_place(const PickleValue& index, const PickleValue& place) {
    const std::string path = folder_ + metadata_name;
    const PickleValue name = member(index, "fqn");
    require(name.is(PickleKind::text), "a name is none");
    if (name.text() == common_state) {
      common_.emplace(bytes_of(place), fmt::format("{}/{}", folder_, member(place, "relative_path").text()));
      return;
    }
    const auto tensor = tensors_.find(std::string(name.text()));
    if (tensor == tensors_.end()) return;
    const std::string what = fmt::format("'{}'", shortened(name.text()));
    const Shape offset = shape_of(member(index, "offset"), path, what);
    const auto chunk = std::ranges::find_if(tensor->second.chunks,
                                            [&](const TensorChunk& other) { return other.box.offset == offset; });
    TRIREME_CHECK(chunk != tensor->second.chunks.end(), DataError, "{}: {} has no part at {}", path, what,
                  to_string(offset));
    if (const auto transforms = place.find("transform_descriptors")) {
      TRIREME_CHECK(transforms->is_none() || transforms->size() == 0, DataError,
                    "{}: the parts of {} are compressed. Save the checkpoint uncompressed", path, what);
    }
    const std::span<const std::byte> bytes = bytes_of(place);
    const TorchArchive archive(bytes, fmt::format("{}/{}", folder_, member(place, "relative_path").text()));
    const StoredTensor stored = archive.tensor(archive.root(), what);
    TRIREME_CHECK(stored.shape == chunk->box.extent && stored.dtype == tensor->second.dtype.value_or(stored.dtype),
                  DataError, "{}: a part of {} is {} {}, which contradicts .metadata", archive.name(), what,
                  name_of(stored.dtype), to_string(stored.shape));
    tensor->second.dtype = stored.dtype;
    tensor->second.found.push_back({chunk->box, stored.bytes, stored.storage});
  }

  std::span<const std::byte> bytes_of(const PickleValue& place) {
    const PickleValue file = member(place, "relative_path"), first = member(place, "offset"),
                      length = member(place, "length");
    require(file.is(PickleKind::text) && first.is(PickleKind::integer) && length.is(PickleKind::integer),
            "a location in a file is malformed");
    const std::string name(file.text());
    TRIREME_CHECK(!name.empty() && name.size() <= 255 && name.find('/') == name.npos && name != "." && name != ".." &&
                      name.find('\0') == name.npos,
                  DataError, "{}{} names a file '{}', which is not the name of a file beside it: refused", folder_,
                  metadata_name, shortened(name));
    auto found = files_.find(name);
    if (found == files_.end()) {
      TRIREME_CHECK(is_there(folder_ + "/" + name), DataError, "{}{} names the file {}, which is not there", folder_,
                    metadata_name, name);
      found = files_.emplace(name, map_file(folder_ + "/" + name)).first;
    }
    const std::span<const std::byte> bytes = found->second->bytes();
    const auto size = static_cast<std::int64_t>(bytes.size());
    TRIREME_CHECK(first.integer() >= 0 && first.integer() <= size && length.integer() >= 0 &&
                      length.integer() <= size - first.integer(),
                  DataError, "{}/{} has {} bytes, but {} at byte {} should be there: it was cut off", folder_, name,
                  size, length.integer(), first.integer());
    return bytes.subspan(static_cast<std::size_t>(first.integer()), static_cast<std::size_t>(length.integer()));
  }

  /// Joins gate and up projections of SwiGLU that were saved as two tensors, "..._w" and "..._v".
  void join_gates() {
    std::vector<std::string> gates;
    for (const auto& [name, tensor] : tensors_) {
      if (name.ends_with("linear_fc1.weight_w") || name.ends_with("linear_fc1.bias_w")) gates.push_back(name);
    }
    for (const std::string& name : gates) {
      const std::string stem = name.substr(0, name.size() - 2);
      const auto up = tensors_.find(stem + "_v");
      DistributedTensor joined = tensors_.at(name);
      const bool fits = up != tensors_.end() && up->second.shape == joined.shape && up->second.dtype == joined.dtype &&
                        joined.shape.rank() > 0 && !tensors_.contains(stem);
      TRIREME_CHECK(fits, DataError, "{} has the gate '{}', but no matching tensor with '_v'", folder_,
                    shortened(name));
      // A leading dimension, if any, is that of the layers.
      const int dimension = joined.shape.rank() - (stem.ends_with("bias") ? 1 : 2);
      TRIREME_CHECK(dimension >= 0, DataError, "{}: '{}' has too few dimensions", folder_, shortened(name));
      for (TensorChunk chunk : up->second.found) {
        chunk.box.offset[dimension] += joined.shape[dimension];
        joined.found.push_back(chunk);
      }
      joined.shape[dimension] *= 2;
      tensors_.erase(up);
      tensors_.erase(name);
      tensors_.emplace(stem, std::move(joined));
    }
  }

  /// Adds a tensor, or one tensor per layer if it stacks all layers.
  void add(ChunkedSource& source, const std::string& name, const DistributedTensor& tensor) const {
    TRIREME_CHECK(tensor.dtype, DataError, "{} has no data of the tensor '{}'", folder_, shortened(name));
    constexpr std::string_view stacks[] = {"decoder.layers.", "encoder.layers."};
    const auto* const stack =
        std::ranges::find_if(stacks, [&](std::string_view prefix) { return name.starts_with(prefix); });
    const std::size_t prefix = stack == std::end(stacks) ? name.size() : stack->size();
    const bool stacked = prefix < name.size() && (name[prefix] < '0' || name[prefix] > '9');
    if (!stacked) return source.add({name, *tensor.dtype, tensor.shape}, tensor.found);
    TRIREME_CHECK(tensor.shape.rank() >= 2 && tensor.shape[0] == layers_, DataError,
                  "{}: the tensor '{}' is {}, but the model has {} layers", folder_, shortened(name),
                  to_string(tensor.shape), layers_);
    for (int layer = 0; layer < layers_; ++layer) {
      std::vector<TensorChunk> chunks;
      for (const TensorChunk& chunk : tensor.found) {
        const std::int64_t row = layer - chunk.box.offset[0];
        if (row < 0 || row >= chunk.box.extent[0]) continue;
        const std::size_t bytes = chunk.bytes.size() / static_cast<std::size_t>(chunk.box.extent[0]);
        chunks.push_back({{without_first(chunk.box.offset), without_first(chunk.box.extent)},
                          chunk.bytes.subspan(static_cast<std::size_t>(row) * bytes, bytes),
                          chunk.storage});
      }
      source.add(
          {fmt::format("{}{}.{}", *stack, layer, name.substr(prefix)), *tensor.dtype, without_first(tensor.shape)},
          std::move(chunks));
    }
  }
  static Shape without_first(const Shape& shape) { return Shape(shape.extents().subspan(1)); }

  const std::string& folder_;
  std::int64_t layers_ = 0;
  std::map<std::string, DistributedTensor> tensors_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
  std::optional<TorchArchive> common_;  // for a checkpoint without common.pt
};

}  // namespace

bool has_distributed_files(const std::string& folder) { return is_there(folder + metadata_name); }

MegatronCheckpoint open_distributed_files(const std::string& folder) { return DistributedFiles(folder).open(); }

}  // namespace trireme::io
