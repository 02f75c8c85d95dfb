#include "src/backend/rehearsal_backend.hpp"

#include <algorithm>
#include <cstdint>

namespace trireme {
namespace {

class RehearsedGraph final : public Graph {
 public:
  void launch(Stream&) override {}
};

}  // namespace

class RehearsalBackend::Memory final : public Allocator {
 public:
  Buffer allocate(std::size_t size_bytes) override {
    constexpr std::size_t line = 64;
    const std::size_t taken = std::max(line, (size_bytes + line - 1) / line * line);
    // Nothing accesses these addresses, but callers compare them.
    std::byte* data = reinterpret_cast<std::byte*>(next_address_);
    next_address_ += taken;
    now_ += taken;
    peak_ = std::max(peak_, now_);
    return {data, size_bytes, [this, taken](std::byte*) { now_ -= taken; }};
  }
  std::size_t now() const { return now_; }
  std::size_t peak() const { return peak_; }

 private:
  std::uintptr_t next_address_ = 4096;
  std::size_t now_ = 0;
  std::size_t peak_ = 0;
};

RehearsalBackend::RehearsalBackend(const Backend& backend)
    : backend_(backend), memory_(std::make_unique<Memory>()), host_memory_(std::make_unique<Memory>()) {}
RehearsalBackend::~RehearsalBackend() = default;

void RehearsalBackend::begin(Stream&, const KernelCall& call) {
  for (const auto extent :
       {&KernelExtents::weight_gradient, &KernelExtents::summed_rows, &KernelExtents::summed_columns}) {
    extents_.*extent = std::max(extents_.*extent, call.extents.*extent);
  }
}

Allocator& RehearsalBackend::host_memory() { return *host_memory_; }
Buffer RehearsalBackend::allocate(std::size_t size_bytes) { return memory_->allocate(size_bytes); }
std::size_t RehearsalBackend::allocated_bytes() const { return memory_->now(); }
std::size_t RehearsalBackend::peak_allocated_bytes() const { return memory_->peak(); }

std::unique_ptr<Graph> RehearsalBackend::record(const std::function<void()>& enqueue) {
  enqueue();
  return std::make_unique<RehearsedGraph>();
}

}  // namespace trireme
