#include "io/torch/torch_weights.hpp"

#include <map>
#include <set>
#include <vector>

#include "io/json/weight_map.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/torch/chunked_source.hpp"
#include "io/torch/torch_archive.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/exchange/model_class.hpp"

namespace trireme::io {
namespace {

constexpr std::int64_t max_index_bytes = 100'000'000;
constexpr std::size_t max_weights = std::size_t{1} << 20;

using Weights = std::map<std::string, StoredTensor>;

/// Adds the tensors of a file to `weights`; returns their names.
std::set<std::string> add_weights(const TorchArchive& archive, Weights& weights) {
  const std::optional<PickleValue> entries = archive.root().entries();
  TRIREME_CHECK(entries && entries->size() / 2 <= max_weights, DataError,
                "{} holds {} instead of a dictionary of weights", archive.name(), archive.root().description());
  std::set<std::string> names;
  for (std::size_t i = 0; i < entries->size(); i += 2) {
    const PickleValue key = entries->item(i), value = entries->item(i + 1);
    TRIREME_CHECK(key.is(PickleKind::text) && key.text().size() <= 1000, DataError, "{}: the name of a weight is {}",
                  archive.name(), key.description());
    const std::string name(key.text());
    names.insert(name);
    if (exchange::is_buffer(name)) continue;
    TRIREME_CHECK(weights.emplace(name, archive.tensor(value, fmt::format("'{}'", shortened(name)))).second, DataError,
                  "{}: another file has the tensor '{}', too", archive.name(), shortened(name));
  }
  return names;
}

}  // namespace

bool has_torch_weights(const std::string& path) {
  if (!is_folder(path + "/.")) return !path.ends_with(".safetensors") && is_there(path);
  const auto has = [&](const char* name) { return is_there(path + "/" + name); };
  if (has("model.safetensors") || has("model.safetensors.index.json")) return false;
  return has(torch_weights_name) || has(torch_weights_index_name);
}

std::unique_ptr<exchange::TensorSource> open_torch_weights(const std::string& path) {
  const bool is_single = !is_folder(path + "/.");
  const std::string index = path + "/" + torch_weights_index_name;
  std::vector<std::string> paths{is_single ? path : path + "/" + torch_weights_name};
  std::map<std::string, std::string> expected;  // file of each tensor
  if (!is_single && !is_there(paths.front()) && is_there(index)) {
    expected = parse_weight_map(read_whole_file(index, max_index_bytes, Symlinks::follow), index);
    std::set<std::string> names;
    for (const auto& [tensor, file] : expected) names.insert(file);
    paths.clear();
    for (const std::string& name : names) paths.push_back(path + "/" + name);
  }
  Weights weights;
  std::vector<std::shared_ptr<const void>> files;
  for (const std::string& file : paths) {
    const MappedArchive mapped(file);
    files.push_back(mapped.file);
    for (const std::string& name : add_weights(mapped.archive, weights)) {
      const auto found = expected.find(name);
      TRIREME_CHECK(expected.empty() || (found != expected.end() && path + "/" + found->second == file), DataError,
                    "{} has the tensor '{}', which {} does not expect there", file, shortened(name), index);
      if (found != expected.end()) found->second.clear();
    }
  }
  for (const auto& [tensor, file] : expected) {
    TRIREME_CHECK(file.empty(), DataError, "{} expects the tensor '{}' in {}, which does not have it", index,
                  shortened(tensor), file);
  }
  auto source = std::make_unique<ChunkedSource>(path, std::move(files));
  for (const auto& [name, tensor] : weights) {
    source->add({name, tensor.dtype, tensor.shape}, {{Box::whole(tensor.shape), tensor.bytes, tensor.storage}});
  }
  return source;
}

}  // namespace trireme::io
