#include "tests/fakes/guarded_heap.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace fake_cuda {
namespace {

constexpr std::size_t reserved_bytes = std::size_t{1} << 32, page_bytes = std::size_t{2} << 20, alignment = 256;
std::byte* guarded = nullptr;

void explain(int, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  if (guarded != nullptr && at >= guarded && at < guarded + reserved_bytes) {
    constexpr char message[] = "the host touched memory of the GPU\n";
    static_cast<void>(!write(STDERR_FILENO, message, sizeof message - 1));
  }
  // The instruction runs again and ends the program.
  signal(SIGSEGV, SIG_DFL);
}

}  // namespace

GuardedHeap::GuardedHeap() {
  void* memory = mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = guarded = static_cast<std::byte*>(memory);
  // Huge pages are protected in a moment.
  madvise(memory, reserved_bytes, MADV_HUGEPAGE);
  struct sigaction action {};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

GuardedHeap::~GuardedHeap() { munmap(base_, reserved_bytes); }

void* GuardedHeap::allocate(std::size_t size_bytes) {
  const std::size_t size = std::max(alignment, (size_bytes + alignment - 1) / alignment * alignment);
  std::size_t offset = top_;
  if (const auto fitting = free_.find(size); fitting != free_.end()) {
    offset = fitting->second;
    free_.erase(fitting);
  } else {
    if (top_ + size > reserved_bytes) throw std::bad_alloc();
    top_ += size;
  }
  sizes_[offset] = size;
  if (accesses_ > 0) protect(true);  // the block may be new
  return base_ + offset;
}

void GuardedHeap::free(void* pointer) {
  const auto block = sizes_.find(static_cast<std::size_t>(static_cast<std::byte*>(pointer) - base_));
  free_.emplace(block->second, block->first);
  sizes_.erase(block);
}

bool GuardedHeap::contains(const void* pointer) const { return pointer >= base_ && pointer < base_ + reserved_bytes; }

void GuardedHeap::protect(bool may_be_touched) {
  const std::size_t used = (top_ + page_bytes - 1) / page_bytes * page_bytes;
  if (used > 0) mprotect(base_, used, may_be_touched ? PROT_READ | PROT_WRITE : PROT_NONE);
}

GuardedHeap::Access::Access(GuardedHeap* heap) : heap_(heap) {
  if (heap_ != nullptr && heap_->accesses_++ == 0) heap_->protect(true);
}
GuardedHeap::Access::~Access() {
  if (heap_ != nullptr && --heap_->accesses_ == 0) heap_->protect(false);
}

}  // namespace fake_cuda
