#pragma once

#include <array>
#include <functional>
#include <future>
#include <list>
#include <memory>

#include "cuda/runtime/error.hpp"
#include "cuda/runtime/multiprocessors.hpp"
#include "src/base/unique_handle.hpp"

namespace trireme::cuda {

/// Returns the GPU of the rank with this number on its machine. Ranks are assigned GPUs round-robin. `visible` > 0.
inline int choose_device(int local_rank, int visible) { return local_rank % visible; }

/// "NVIDIA H200, 139 GiB, compute capability 9.0, PCI 0000:1b:00.0"
std::string to_text(const cudaDeviceProp& properties);
/// "0000:17:00.0"
std::string pci_address(const cudaDeviceProp& properties);

/// Traits of an object of a CUDA library, for UniqueHandle.
template <class Pointer, auto destroy>
struct ObjectTraits {
  using Handle = Pointer;
  static Handle null() { return nullptr; }
  static void close(Handle object) noexcept { destroy(object); }
};
using EventHandle = UniqueHandle<ObjectTraits<cudaEvent_t, cudaEventDestroy>>;

/// Time at which kernel launches are checked.
enum class LaunchChecks {
  deferred,  ///< an error inside a kernel surfaces at a later call
  immediate  ///< the host waits for every kernel: slow, and names the kernel that failed
};

/// The GPU of this rank: state shared by its streams, memory and libraries. Not thread-safe.
class Device {
 public:
  /// Selects GPU `location.device` for the calling thread and fills in its name. Throws CudaError.
  Device(DeviceLocation location, LaunchChecks checks);

  const DeviceLocation& location() const { return location_; }
  const std::string& uuid() const { return uuid_; }
  /// "GPU 1 (NVIDIA H200, 139 GiB, compute capability 9.0, PCI 0000:1b:00.0)"
  std::string description() const;
  int compute_capability() const { return compute_capability_; }  ///< 90 for 9.0
  /// Maximum shared memory of a block.
  std::size_t shared_bytes_of_block() const { return shared_bytes_of_block_; }
  std::size_t l2_bytes() const { return l2_bytes_; }  ///< size of the L2 cache
  Multiprocessors& multiprocessors() { return *multiprocessors_; }

  /// Throws CudaError unless `status` is success; MachineError, of which the job's script is informed
  /// (report_faulty_nodes), if the machine has failed (is_of_machine). `call` is the function of the CUDA runtime that
  /// returned it.
  void check(cudaError_t status, const char* call,
             const std::source_location& location = std::source_location::current()) const;

  /// An event, by default without a time.
  EventHandle make_event(unsigned flags = cudaEventDisableTiming) const;

  /// Must be called after every launch of a kernel, copy or similar. Throws CudaError with the kernel's name if the
  /// launch failed. With LaunchChecks::immediate it waits for the kernel, as `wait_until` does; else only if the host
  /// is far ahead of the GPU. Drivers queue about a thousand launches and then block the host. A blocked host would not
  /// notice the failure of another rank.
  void launched(cudaStream_t stream, const char* kernel,
                const std::source_location& location = std::source_location::current());

  /// Launches so far, copies among them.
  std::size_t launches() const { return launch_count_; }

  /// Blocks the host until `query`, a call such as cudaEventQuery, no longer returns cudaErrorNotReady. Meanwhile it
  /// polls the watched communications for errors. Throws CudaError, which names the latest kernels, what a watched
  /// communication throws, and HungError, which names the communications under way, after the maximum wait.
  void wait_until(const std::function<cudaError_t()>& query, const char* call,
                  const std::source_location& location = std::source_location::current());

  /// Sets the maximum wait; 0, the default: no limit. After a HungError the device must end within `time_to_end_s` and
  /// a fifth of that wait. Otherwise the process is terminated with the error's exit code, since freeing memory waits
  /// for the GPU.
  void set_max_wait(double seconds, double time_to_end_s = 10) {
    max_wait_s_ = seconds;
    time_to_end_s_ = time_to_end_s;
  }
  double max_wait_s() const { return max_wait_s_; }

  /// Communication that runs while the host continues.
  struct Watched {
    std::function<void()> check;                                            ///< throws to end a wait
    std::function<std::string()> under_way = [] { return std::string(); };  ///< for messages; empty: nothing
    std::function<void()> abandon = [] {};  ///< ends the communication without other ranks
    std::function<cudaError_t()> collectives = [] { return cudaSuccess; };  ///< queries the stream of collectives
    std::function<cudaError_t()> operations = [] { return cudaSuccess; };   ///< queries the stream, messages included
  };
  /// Watches `communication` during the lifetime of the token: waits of the host call its `check` repeatedly.
  using Watch = std::shared_ptr<void>;
  [[nodiscard]] Watch watch(Watched communication);
  /// Blocks the host, as `wait_until` does, until the collectives that it has enqueued are complete. Ranks may do so at
  /// different points. A collective needs the matching call on its other ranks, which make it after the same calls as
  /// this rank, and wait only for what they enqueued before it. Messages between two ranks are not waited for: one
  /// posted ahead may depend on work this rank enqueues later.
  void wait_for_collectives();
  /// Ends all watched communication.
  void abandon() const;
  /// Likewise, unless it ends by itself within a second. Must be called before an error frees memory: freeing waits for
  /// the GPU, where an operation may wait for a failed rank. After an error that all ranks have met, or whose handler
  /// goes on, nothing waits, and communication stays usable.
  void abandon_unless_complete() const;

 private:
  std::string latest_launches() const;
  /// Throws the error of a call, with details of the reason.
  [[noreturn]] void fail(cudaError_t status, const char* call, const std::string& details,
                         const std::source_location& location) const;
  [[noreturn]] void throw_hung();
  /// Waits until all but the latest launches on the stream are complete.
  void limit_launches_in_flight(cudaStream_t stream, const char* kernel, const std::source_location& location);

  DeviceLocation location_;
  std::string uuid_;
  std::string properties_;
  std::string pci_configuration_;  // file
  int compute_capability_ = 0;
  std::size_t shared_bytes_of_block_ = 0;
  std::size_t l2_bytes_ = 0;
  std::unique_ptr<Multiprocessors> multiprocessors_;
  LaunchChecks checks_;
  std::list<Watched> watched_;
  bool is_hung_ = false;
  double max_wait_s_ = 0;
  double time_to_end_s_ = 10;
  std::promise<void> lives_;  // broken when the device is destroyed
  std::shared_future<void> end_ = lives_.get_future().share();
  std::array<const char*, 4> launches_{};  // the latest, in a ring
  std::size_t launch_count_ = 0;
  EventHandle mark_;  // after an earlier launch
  int launches_since_mark_ = 0;
};

}  // namespace trireme::cuda
