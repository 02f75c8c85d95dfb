#include "io/checkpoint/shard_record.hpp"

#include <fcntl.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "io/posix/durable_file.hpp"
#include "io/posix/file_handle.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/regular_file.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

constexpr std::int64_t max_record_bytes = std::int64_t{1} << 28;

/// Returns the digest of the entire file; empty if it cannot be read or has another size.
std::string digest_of_file(const std::string& path, std::int64_t size_bytes) {
  if (!is_there(path) || regular_file_size(path, Symlinks::refuse) != size_bytes) return {};
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return {};
  Digest digest;
  std::vector<char> block(std::size_t{4} << 20);
  for (std::int64_t done = 0; done < size_bytes;) {
    const auto count = static_cast<std::size_t>(std::min(size_bytes - done, static_cast<std::int64_t>(block.size())));
    read_at(file.get(), path, block.data(), count, done);
    digest.update(block.data(), count);
    done += static_cast<std::int64_t>(count);
  }
  return digest.hex();
}

}  // namespace

std::string shard_record_name(const std::string& file_name) { return "." + file_name + ".json"; }

void write_shard_record(const std::string& folder, const checkpoint::ShardFile& file,
                        std::span<const checkpoint::ShardDataset> datasets) {
  json record{{"size_bytes", file.entry.size_bytes}, {"digest", file.entry.digest}, {"datasets", json::array()}};
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    record["datasets"].push_back({{"name", datasets[i].name},
                                  {"size_bytes", datasets[i].size_bytes()},
                                  {"offset_bytes", file.offsets_bytes[i]},
                                  {"digest", file.digests[i]}});
  }
  write_durably(folder + "/" + shard_record_name(file.entry.name), record.dump());
}

std::optional<checkpoint::ShardFile> recorded_shard(const std::string& folder, const std::string& file_name,
                                                    std::span<const checkpoint::ShardDataset> datasets) {
  const std::string path = folder + "/" + shard_record_name(file_name);
  if (!is_there(path)) return std::nullopt;
  checkpoint::ShardFile file;
  try {
    const json record = json::parse(read_whole_file(path, max_record_bytes));
    file.entry = {file_name, record.at("size_bytes").get<std::int64_t>(), record.at("digest").get<std::string>()};
    if (record.at("datasets").size() != datasets.size()) return std::nullopt;
    for (std::size_t i = 0; i < datasets.size(); ++i) {
      const json& dataset = record.at("datasets").at(i);
      if (dataset.at("name") != datasets[i].name || dataset.at("size_bytes") != datasets[i].size_bytes()) {
        return std::nullopt;
      }
      file.offsets_bytes.push_back(dataset.at("offset_bytes").get<std::int64_t>());
      file.digests.push_back(dataset.at("digest").get<std::string>());
    }
  } catch (const json::exception&) {
    return std::nullopt;
  }
  if (digest_of_file(folder + "/" + file_name, file.entry.size_bytes) != file.entry.digest) return std::nullopt;
  return file;
}

}  // namespace trireme::io
