#include "src/backend/gpu_health.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace trireme {
namespace {

// The few functions and numbers of NVML that are used; its documentation gives them, and its header is not needed.
// Numbers of enumerations are int in its interface of C.
using NvmlDevice = struct nvmlDevice_st*;
constexpr int nvml_success = 0;
constexpr int clock_of_multiprocessors = 1, clock_of_memory = 2;
constexpr int corrected = 0, uncorrected = 1, since_driver_load = 0;
constexpr int temperature_of_gpu = 0;

/// NVML of this machine, initialised while the object lives. Functions that the library lacks fail.
class Nvml {
 public:
  explicit Nvml(const std::string& library) : handle_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      const char* reason = dlerror();
      problem_ = fmt::format("NVML does not load: {}", reason == nullptr ? library : reason);
      return;
    }
    const int status = call<>("nvmlInit_v2");
    if (status == nvml_success) {
      is_initialised_ = true;
    } else {
      problem_ = fmt::format("nvmlInit_v2 failed: {}", status);
    }
  }
  /// The library stays open, as opened libraries do in this program.
  ~Nvml() {
    if (is_initialised_) call<>("nvmlShutdown");
  }
  Nvml& operator=(Nvml&&) = delete;

  const std::string& problem() const { return problem_; }

  /// Calls a function of the library and returns its status; -1 where it has no such function.
  template <class... Arguments>
  int call(const char* function, Arguments... arguments) const {
    auto* const pointer = reinterpret_cast<int (*)(Arguments...)>(dlsym(handle_, function));
    return pointer == nullptr ? -1 : pointer(arguments...);
  }

  /// Returns what a function writes through its last argument, times `unit`; nothing where it fails.
  template <class T, class Result, class... Arguments>
  std::optional<Result> value(double unit, const char* function, Arguments... arguments) const {
    T number = 0;
    if (call<Arguments..., T*>(function, arguments..., &number) != nvml_success) return {};
    return static_cast<Result>(unit * static_cast<double>(number));
  }

 private:
  void* handle_;
  bool is_initialised_ = false;
  std::string problem_;
};

/// Finds a GPU. Returns the reason why there is none; empty: there is.
std::string find_gpu(const Nvml& nvml, const std::string& pci_address, NvmlDevice& device) {
  if (!nvml.problem().empty()) return nvml.problem();
  const int status = nvml.call("nvmlDeviceGetHandleByPciBusId_v2", pci_address.c_str(), &device);
  if (status == nvml_success) return "";
  return fmt::format("NVML finds no GPU at PCI {}: nvmlDeviceGetHandleByPciBusId_v2 returned {}", pci_address, status);
}

}  // namespace

GpuHealth read_gpu_health(const std::string& pci_address, const std::string& library) {
  GpuHealth health;
  const Nvml nvml(library);
  NvmlDevice device = nullptr;
  health.problem = find_gpu(nvml, pci_address, device);
  if (!health.problem.empty()) return health;
  std::array<char, 96> driver{};
  if (nvml.call("nvmlSystemGetDriverVersion", driver.data(), static_cast<unsigned>(driver.size() - 1)) ==
      nvml_success) {
    health.driver = driver.data();
  }
  using Count = unsigned long long;
  health.max_clock_mhz = nvml.value<unsigned, double>(1, "nvmlDeviceGetMaxClockInfo", device, clock_of_multiprocessors);
  health.max_memory_clock_mhz = nvml.value<unsigned, double>(1, "nvmlDeviceGetMaxClockInfo", device, clock_of_memory);
  health.power_limit_w = nvml.value<unsigned, double>(1e-3, "nvmlDeviceGetEnforcedPowerLimit", device);
  health.corrected_errors =
      nvml.value<Count, std::uint64_t>(1, "nvmlDeviceGetTotalEccErrors", device, corrected, since_driver_load);
  health.uncorrected_errors =
      nvml.value<Count, std::uint64_t>(1, "nvmlDeviceGetTotalEccErrors", device, uncorrected, since_driver_load);
  return health;
}

class GpuMonitor::Gpu {
 public:
  Gpu(const std::string& pci_address, const std::string& library)
      : nvml_(library), is_there_(find_gpu(nvml_, pci_address, device_).empty()) {}

  std::optional<GpuLoad> read() const {
    if (!is_there_) return {};
    const auto number = [&](double unit, const char* function, auto... arguments) {
      return nvml_.value<unsigned, double>(unit, function, device_, arguments...);
    };
    GpuLoad load{.clock_mhz = number(1, "nvmlDeviceGetClockInfo", clock_of_multiprocessors),
                 .memory_clock_mhz = number(1, "nvmlDeviceGetClockInfo", clock_of_memory),
                 .temperature_c = number(1, "nvmlDeviceGetTemperature", temperature_of_gpu),
                 .power_w = number(1e-3, "nvmlDeviceGetPowerUsage"),
                 .slowdowns = {}};
    // The second name is that of older drivers.
    for (const char* function :
         {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}) {
      if (!load.slowdowns) load.slowdowns = nvml_.value<unsigned long long, std::uint64_t>(1, function, device_);
    }
    return load;
  }

 private:
  Nvml nvml_;
  NvmlDevice device_ = nullptr;
  bool is_there_;
};

GpuMonitor::GpuMonitor(const std::string& pci_address, const std::string& library)
    : gpu_(std::make_unique<Gpu>(pci_address, library)) {}
GpuMonitor::~GpuMonitor() = default;
std::optional<GpuLoad> GpuMonitor::read() const { return gpu_->read(); }

}  // namespace trireme
