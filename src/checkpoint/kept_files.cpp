#include "src/checkpoint/kept_files.hpp"

#include <cstring>

namespace trireme::checkpoint {

void KeptFiles::keep(std::size_t file) {
  const std::int64_t size_bytes = manifest().files[file].size_bytes;
  if (size_bytes > left_bytes_ || file_size(file) != size_bytes) return;
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size_bytes));
  step_->read(file, 0, std::span(bytes.get(), static_cast<std::size_t>(size_bytes)));
  left_bytes_ -= size_bytes;
  kept_.emplace(file, std::move(bytes));
}

void KeptFiles::read(std::size_t file, std::int64_t offset_bytes, std::span<std::byte> out) {
  const auto found = kept_.find(file);
  if (found == kept_.end()) return step_->read(file, offset_bytes, out);
  std::memcpy(out.data(), found->second.get() + offset_bytes, out.size());  // inside: the manifest is validated
}

}  // namespace trireme::checkpoint
