#pragma once

#include <utility>

namespace trireme {

/// Sole owner of a C handle. `Traits` names the handle: `using Handle`, `static Handle null()`, and `static void
/// close(Handle) noexcept`. Moving leaves the source empty, so nothing is closed twice.
template <class Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueHandle() { reset(); }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Traits::null(); }
  Handle release() { return std::exchange(handle_, Traits::null()); }
  void reset(Handle handle = Traits::null()) {
    if (handle_ != Traits::null()) Traits::close(handle_);
    handle_ = handle;
  }

 private:
  Handle handle_ = Traits::null();
};

}  // namespace trireme
