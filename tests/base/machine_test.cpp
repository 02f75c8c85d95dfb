#include "src/base/machine.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.hpp"

namespace trireme {
namespace {

/// Files of /proc and /sys below a folder.
class MachineMemoryTest : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_.path() + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  void expect(std::int64_t total, std::int64_t available) {
    const MachineMemory memory = machine_memory(root_.path());
    EXPECT_EQ(memory.total_bytes, total);
    EXPECT_EQ(memory.available_bytes, available);
  }

  static std::int64_t physical() { return std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE); }

  test::TemporaryDirectory root_;
};

TEST_F(MachineMemoryTest, IsTheMachinesWithoutControlGroups) {
  expect(physical(), physical());
  put("/proc/meminfo", "MemTotal:       24 kB\nMemFree: 1 kB\nMemAvailable:   12 kB\n");
  expect(physical(), 12 << 10);
}

TEST_F(MachineMemoryTest, IsTheLeastLimitOfTheGroupsAboveAProcess) {
  put("/proc/meminfo", "MemAvailable:   900000 kB\n");
  put("/proc/self/cgroup", "0::/system.slice/job_7/step_0\n");
  const std::string job = "/sys/fs/cgroup/system.slice/job_7";
  put(job + "/step_0/memory.max", "max\n");
  put(job + "/step_0/memory.current", "70000\n");
  expect(physical(), 900000 << 10);
  put(job + "/memory.max", "100000\n");
  put(job + "/memory.current", "80000\n");
  put(job + "/memory.stat", "anon 30000\nfile 50000\ninactive_file 20000\nactive_file 10000\n");
  expect(100000, 50000);  // 30000 of the 80000 are cached files
  put(job + "/memory.current", "170000\n");
  expect(100000, 0);
}

TEST_F(MachineMemoryTest, ReadsGroupsOfTheFirstVersion) {
  put("/proc/meminfo", "MemAvailable:   900000 kB\n");
  put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/slurm/job:7\n3:cpuset:/\n0::/\n");
  const std::string job = "/sys/fs/cgroup/memory/slurm/job:7";
  put(job + "/memory.limit_in_bytes", "9223372036854771712\n");
  put(job + "/memory.usage_in_bytes", "70000\n");
  expect(physical(), 900000 << 10);
  put(job + "/memory.limit_in_bytes", "200000\n");
  put(job + "/memory.stat", "inactive_file 7\nactive_file 7\ntotal_inactive_file 20000\ntotal_active_file 0\n");
  expect(200000, 150000);
}

TEST_F(MachineMemoryTest, FindsTheGroupOfAContainerThatSeesThePathOfItsHost) {
  put("/proc/meminfo", "MemAvailable:   900000 kB\n");
  put("/proc/self/cgroup", "4:memory:/docker/0123\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "200000\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "50000\n");
  expect(200000, 150000);
}

}  // namespace
}  // namespace trireme
