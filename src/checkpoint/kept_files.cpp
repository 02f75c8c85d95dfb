#include "src/checkpoint/kept_files.hpp"

#include <cstring>

namespace trireme::checkpoint {

void KeptFiles::keep(std::size_t file) {
  const std::int64_t size_bytes = manifest().files[file].size_bytes;
  if (size_bytes > left_bytes_ || file_size(file) != size_bytes) return;
  kept_[file] = {std::make_unique<ZeroPages<std::byte>>(static_cast<std::size_t>(size_bytes)), size_bytes};
  left_bytes_ -= size_bytes;
}

void KeptFiles::read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) {
  const auto found = kept_.find(file);
  if (found == kept_.end()) return step_->read(file, offset_bytes, out);
  Kept& kept = found->second;
  std::byte* const bytes = kept.bytes->begin() + offset_bytes;
  const std::int64_t end = offset_bytes + static_cast<std::int64_t>(out.size());
  if (offset_bytes == kept.end && end <= kept.size_bytes) {
    step_->read(file, offset_bytes, std::span(bytes, out.size()));
    kept.end = end;
  }
  if (end > kept.end) return step_->read(file, offset_bytes, out);
  std::memcpy(out.data(), bytes, out.size());
}

}  // namespace trireme::checkpoint
