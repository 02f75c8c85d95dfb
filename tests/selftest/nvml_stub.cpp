// Stand-in for NVIDIA's management library with one GPU, at PCI 0000:17:00.0. The environment variable
// NVML_STUB_UNCORRECTED is its number of ECC errors that were not corrected.
#include <cstdlib>
#include <cstring>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  static int gpu;
  *device = &gpu;
  return std::strcmp(address, "0000:17:00.0") == 0 ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::strncpy(version, "580.1", length);
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
  *count = type == 0 ? 7 : std::strtoull(std::getenv("NVML_STUB_UNCORRECTED"), nullptr, 10);
  return 0;
}
}
