// Stand-in for NVML with GPUs at the PCI addresses of domain 0, buses 00 and 17. Environment variables set its values:
// NVML_STUB_UNCORRECTED (uncorrected ECC errors), NVML_STUB_SLOWDOWNS (bits of throttle reasons), NVML_STUB_CLOCK (MHz)
// and NVML_STUB_DRIVER (version).
#include <cstdlib>
#include <cstring>

namespace {

unsigned long long number(const char* variable, const char* otherwise) {
  const char* text = std::getenv(variable);
  return std::strtoull(text == nullptr ? otherwise : text, nullptr, 10);
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  static int gpu;
  *device = &gpu;
  const bool is_there = std::strcmp(address, "0000:17:00.0") == 0 || std::strcmp(address, "0000:00:00.0") == 0;
  return is_there ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  const char* own = std::getenv("NVML_STUB_DRIVER");
  std::strncpy(version, own == nullptr ? "580.1" : own, length);
  return 0;
}

int nvmlDeviceGetMaxClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 1 ? 1980 : 2619;
  return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  return 0;
}

int nvmlDeviceGetTotalEccErrors(void*, int type, int, unsigned long long* count) {
  *count = type == 0 ? 7 : number("NVML_STUB_UNCORRECTED", "0");
  return 0;
}

int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 1 ? static_cast<unsigned>(number("NVML_STUB_CLOCK", "1710")) : 2619;
  return 0;
}

int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 64;
  return 0;
}

int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 690000;
  return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = number("NVML_STUB_SLOWDOWNS", "0");
  return 0;
}
}
