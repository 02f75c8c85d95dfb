#include "cuda/runtime/device.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "src/base/log.hpp"
#include "src/base/timer.hpp"

namespace trireme::cuda {
namespace {

std::string hexadecimal(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

/// Throws EnvironmentError if another process holds a GPU that takes one alone: the machine has not failed.
void check_compute_mode(cudaError_t status, const DeviceLocation& location) {
  int mode = cudaComputeModeDefault;
  if (status != cudaErrorDevicesUnavailable ||
      cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, location.device) != cudaSuccess ||
      mode == cudaComputeModeDefault) {
    return;
  }
  throw EnvironmentError(
      "{} is in compute mode {} and takes no further process: start one rank for each GPU, end the programs that "
      "nvidia-smi shows on it, or set its mode with nvidia-smi -c DEFAULT",
      to_string(location), mode == cudaComputeModeProhibited ? "PROHIBITED" : "EXCLUSIVE_PROCESS");
}

}  // namespace

std::string pci_address(const cudaDeviceProp& properties) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
}

std::string to_text(const cudaDeviceProp& properties) {
  return fmt::format("{}, {} GiB, compute capability {}.{}, PCI {}", properties.name, properties.totalGlobalMem >> 30,
                     properties.major, properties.minor, pci_address(properties));
}

Device::Device(DeviceLocation location, LaunchChecks checks) : location_(std::move(location)), checks_(checks) {
  const cudaError_t status = cudaSetDevice(location_.device);
  check_compute_mode(status, location_);
  check(status, "cudaSetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, location_.device), "cudaGetDeviceProperties");
  location_.device_name = properties.name;
  uuid_ = hexadecimal(properties.uuid);
  properties_ = to_text(properties);
  pci_configuration_ = fmt::format("/sys/bus/pci/devices/{}/config", pci_address(properties));
  compute_capability_ = 10 * properties.major + properties.minor;
  shared_bytes_of_block_ = properties.sharedMemPerBlockOptin;
  l2_bytes_ = static_cast<std::size_t>(properties.l2CacheSize);
  multiprocessors_ = std::make_unique<Multiprocessors>(properties.multiProcessorCount);
  mark_ = make_event();
}

EventHandle Device::make_event(unsigned flags) const {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  return EventHandle(event);
}

std::string Device::description() const { return fmt::format("GPU {} ({})", location_.device, properties_); }

void Device::check(cudaError_t status, const char* call, const std::source_location& location) const {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which is not one of a later launch
  fail(status, call, "", location);
}

void Device::fail(cudaError_t status, const char* call, const std::string& details,
                  const std::source_location& location) const {
  const std::string text = error_text(call, reason_of(status) + details, location_, location);
  if (!is_of_machine(status, pci_configuration_)) throw CudaError(text);
  throw_machine_error(text, location_.host);
}

void Device::launched(cudaStream_t stream, const char* kernel, const std::source_location& location) {
  launches_[launch_count_++ % launches_.size()] = kernel;
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) fail(status, kernel, "", location);
  if (checks_ == LaunchChecks::immediate) {
    wait_until([stream] { return cudaStreamQuery(stream); }, kernel, location);
  } else {
    constexpr int launches_a_mark = 256;
    if (++launches_since_mark_ >= launches_a_mark) limit_launches_in_flight(stream, kernel, location);
  }
}

void Device::limit_launches_in_flight(cudaStream_t stream, const char* kernel, const std::source_location& location) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing", location);
  if (capture != cudaStreamCaptureStatusNone) return;  // recorded work is not in flight
  wait_until([this] { return cudaEventQuery(mark_.get()); }, kernel, location);
  check(cudaEventRecord(mark_.get(), stream), "cudaEventRecord", location);
  launches_since_mark_ = 0;
}

std::string Device::latest_launches() const {
  if (launch_count_ == 0) return "";
  std::string text;
  for (std::size_t back = 1; back <= launches_.size() && back <= launch_count_; ++back) {
    text += (back == 1 ? "" : ", ") + std::string(launches_[(launch_count_ - back) % launches_.size()]);
  }
  return "; latest launches, newest first: " + text +
         (checks_ == LaunchChecks::immediate ? "" : "; <check_launches> names the one that failed");
}

void Device::wait_until(const std::function<cudaError_t()>& query, const char* call,
                        const std::source_location& location) {
  // Most waits are short: the host first spins, and then yields the core.
  constexpr double spin_ms = 0.2;
  constexpr auto pause = std::chrono::microseconds(20);
  // By default Linux extends a thread's sleeps by up to 50 us.
  [[maybe_unused]] thread_local const int sleeps_precisely = prctl(PR_SET_TIMERSLACK, 1UL);
  const Timer timer;
  Patience patience(max_wait_s_);
  for (;;) {
    const cudaError_t status = query();
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) fail(status, call, latest_launches(), location);
    for (const Watched& watched : watched_) watched.check();
    if (patience.over()) throw_hung();
    if (timer.elapsed_ms() > spin_ms) std::this_thread::sleep_for(pause);
  }
}

void Device::throw_hung() {
  is_hung_ = true;
  std::string text;
  for (const Watched& watched : watched_) {
    const std::string one = watched.under_way();
    if (!one.empty()) text += (text.empty() ? " in " : ", ") + one;
  }
  const HungError error("waiting for {:g} s for GPU {} ({}){}", max_wait_s_, location_.device, location_.device_name,
                        text.empty() ? latest_launches() : text);
  const std::chrono::duration<double> time_to_end(time_to_end_s_ + max_wait_s_ / 5);
  std::thread([time_to_end, end = end_, message = fmt::format("{}; {}", error.what(), to_string(location_))] {
    if (end.wait_for(time_to_end) == std::future_status::ready) return;
    log::error("ending this process, which did not end by itself after an error: {}", message);
    std::_Exit(static_cast<int>(ExitCode::hung));
  }).detach();
  throw error;
}

void Device::abandon() const {
  for (const Watched& watched : watched_) watched.abandon();
}

void Device::abandon_unless_complete() const {
  constexpr double patience_ms = 1000;
  const Timer timer;
  for (const Watched& watched : watched_) {
    for (;;) {
      const cudaError_t status = watched.operations();
      if (status == cudaSuccess) break;
      if (is_hung_ || status != cudaErrorNotReady || timer.elapsed_ms() > patience_ms) return abandon();
    }
  }
}

void Device::wait_for_collectives() {
  for (const Watched& watched : watched_) wait_until(watched.collectives, "cudaStreamQuery");
}

Device::Watch Device::watch(Watched communication) {
  watched_.push_back(std::move(communication));
  const auto position = std::prev(watched_.end());
  return {nullptr, [this, position](void*) { watched_.erase(position); }};
}

}  // namespace trireme::cuda
