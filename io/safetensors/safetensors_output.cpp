#include "io/safetensors/safetensors_output.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "io/posix/folder.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

constexpr std::string_view digest_member = "\"trireme_digest\":\"";
constexpr std::size_t stated_digest_size = 32;

/// Returns the position of the digest in one of this program's headers.
std::size_t digest_position(std::string_view header) { return header.find(digest_member) + digest_member.size(); }

bool is_model_file(std::string_view name) {
  return name == safetensors_name || name == adapter_names.stem + ".safetensors" ||
         (name.starts_with("model-") && name.ends_with(".safetensors"));
}

}  // namespace

SafetensorsOutput::SafetensorsOutput(std::string folder, std::vector<exchange::ForeignTensor> tensors,
                                     std::int64_t max_file_bytes, const std::string& origin, ExportNames names)
    : folder_(std::move(folder)), names_(std::move(names)), tensors_(std::move(tensors)), offsets_(tensors_.size()) {
  std::vector<std::int64_t> data_bytes;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::int64_t size = tensors_[i].shape.numel() * static_cast<std::int64_t>(size_of(tensors_[i].dtype));
    if (files_.empty() || data_bytes.back() + size > max_file_bytes) {
      files_.emplace_back();
      data_bytes.push_back(0);
    }
    offsets_[i] = data_bytes.back();
    files_.back().push_back(i);
    data_bytes.back() += size;
    total_bytes_ += size;
  }
  for (std::size_t file = 0; file < files_.size(); ++file) {
    std::vector<exchange::ForeignTensor> of_file;
    for (const std::size_t i : files_[file]) of_file.push_back(tensors_[i]);
    headers_.push_back(safetensors_header(
        of_file,
        {{"format", "pt"}, {"trireme_digest", std::string(stated_digest_size, '0')}, {"trireme_origin", origin}}));
    const auto data = safetensors_length_bytes + static_cast<std::int64_t>(headers_.back().size());
    for (const std::size_t i : files_[file]) offsets_[i] += data;
    sizes_.push_back(data + data_bytes[file]);
  }
}

std::string SafetensorsOutput::file_name(std::size_t file) const {
  return files_.size() == 1 ? names_.stem + ".safetensors"
                            : fmt::format("{}-{:05}-of-{:05}.safetensors", names_.stem, file + 1, files_.size());
}

std::string SafetensorsOutput::open_existing(std::size_t file) {
  const std::string path = folder_ + "/" + file_name(file);
  file_ = Descriptor(retried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW); }));
  if (!file_) return {};
  struct stat status {};
  const std::string& wanted = headers_[file];
  if (fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != sizes_[file]) return {};
  std::uint64_t length = 0;
  std::string header(wanted.size(), '\0');
  read_at(file_.get(), path, &length, sizeof length, 0);
  if (length != wanted.size()) return {};
  read_at(file_.get(), path, header.data(), header.size(), safetensors_length_bytes);
  const std::size_t position = digest_position(wanted);
  const std::string digest = header.substr(position, stated_digest_size);
  header.replace(position, stated_digest_size, wanted, position, stated_digest_size);
  if (header != wanted) return {};
  present_ = file;
  path_ = path;
  return digest;
}

std::string SafetensorsOutput::begin(std::size_t file) {
  // From here on, files of this export coexist with those of an earlier one.
  const std::string description = folder_ + "/" + names_.description;
  if (unlink(description.c_str()) != 0 && errno != ENOENT) throw_system_error("cannot delete " + description, errno);
  begun_ = std::make_unique<TemporaryFile>(folder_ + "/" + file_name(file));
  const Descriptor output(::open(begun_->path().c_str(), O_WRONLY | O_CLOEXEC));
  if (!output) throw_system_error("cannot write " + begun_->path(), errno);
  const std::uint64_t length = headers_[file].size();
  write_at(output.get(), begun_->path(), &length, sizeof length, 0);
  write_at(output.get(), begun_->path(), headers_[file].data(), headers_[file].size(), safetensors_length_bytes);
  return begun_->path();
}

void SafetensorsOutput::open(std::size_t file, const std::string& begun) {
  present_ = file;
  path_ = begun;
  TRIREME_CHECK(is_there(begun), EnvironmentError,
                "{} is missing, though rank 0 created it: an export needs a folder that all ranks share", begun);
  writer_ = std::make_unique<BlockWriter>(begun);
}

/// Calls `visit` with each range's offset in the file and its offset among the bytes of all ranges.
template <class Visit>
void SafetensorsOutput::for_each_range(const exchange::Ranges& ranges, const Visit& visit) const {
  const auto element = static_cast<std::int64_t>(size_of(tensors_[ranges.tensor].dtype));
  for (std::int64_t i = 0; i < ranges.count; ++i) {
    visit(offsets_[ranges.tensor] + (ranges.first + i * ranges.stride) * element,
          static_cast<std::size_t>(i * ranges.length * element), static_cast<std::size_t>(ranges.length * element));
  }
}

void SafetensorsOutput::write(const exchange::Ranges& ranges, std::span<const std::byte> elements) {
  for_each_range(ranges, [&](std::int64_t place, std::size_t begin, std::size_t size_bytes) {
    writer_->write(place, elements.subspan(begin, size_bytes));
  });
}

void SafetensorsOutput::read(const exchange::Ranges& ranges, std::span<std::byte> out) {
  for_each_range(ranges, [&](std::int64_t place, std::size_t begin, std::size_t size_bytes) {
    read_at(file_.get(), path_, out.data() + begin, size_bytes, place);
  });
}

void SafetensorsOutput::close() {
  if (writer_) {
    writer_->finish();
    writer_.reset();
    sync_to_disk(path_);
  }
  file_.reset();
}

void SafetensorsOutput::commit(const std::string& digest) {
  {
    const Descriptor output(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    if (!output) throw_system_error("cannot write " + path_, errno);
    write_at(output.get(), path_, digest.data(), digest.size(),
             safetensors_length_bytes + static_cast<std::int64_t>(digest_position(headers_[present_])));
  }
  begun_->commit();
  begun_.reset();
}

void SafetensorsOutput::abandon() noexcept {
  writer_.reset();
  begun_.reset();
}

void SafetensorsOutput::prepare_folder() const {
  for (const std::string& name : names_in(folder_)) {
    bool is_own = name == safetensors_index_name && files_.size() > 1;
    for (std::size_t file = 0; file < files_.size(); ++file) is_own = is_own || name == file_name(file);
    TRIREME_CHECK(is_own || !(is_model_file(name) || name == safetensors_index_name), ConfigError,
                  "{}/{} belongs to another export, and would be read with this one: name another <output>, or delete "
                  "it",
                  folder_, name);
    const std::size_t partial = name.find(".safetensors.partial-");
    if (partial != name.npos && is_model_file(name.substr(0, name.find(".partial-")))) {
      unlink((folder_ + "/" + name).c_str());  // a killed export's; harmless if it stays
    }
  }
}

void SafetensorsOutput::finish() const {
  if (files_.size() == 1) return;
  nlohmann::ordered_json index;
  index["metadata"] = {{"total_size", total_bytes_}};
  for (std::size_t file = 0; file < files_.size(); ++file) {
    for (const std::size_t i : files_[file]) index["weight_map"][tensors_[i].name] = file_name(file);
  }
  write_durably(folder_ + "/" + safetensors_index_name, index.dump(2) + "\n");
}

}  // namespace trireme::io
