// Saves that are killed or fail at any point. LATEST always leads to the step that was committed last, or to the one
// that was being saved.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/machine.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/support/checkpoint_model.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// A running driver, whose standard output this process reads.
class Driver {
 public:
  Driver(const std::string& root, int saves, std::vector<std::string> environment = {}, const char* again = nullptr) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      const int null = open("/dev/null", O_WRONLY);
      dup2(null, STDERR_FILENO);
      close(ends[0]);
      for (std::string& setting : environment) putenv(setting.data());
      execl(TRIREME_CHECKPOINT_DRIVER, "checkpoint_driver", root.c_str(), std::to_string(saves).c_str(), again,
            nullptr);
      _exit(127);
    }
    close(ends[1]);
    output_.reset(ends[0]);
  }
  ~Driver() {
    if (child_ > 0) kill_now();
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void wait_until_ready() {
    while (text_.find('\n') == std::string::npos && read_some()) continue;
  }
  void kill_now() {
    kill(child_, SIGKILL);
    finish();
  }
  /// Reads to the end and waits. Returns the exit code, or -signal.
  int finish() {
    while (read_some()) continue;
    int status = 0;
    waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  const std::string& text() const { return text_; }
  /// Returns the number after the last `word`; `otherwise` if none.
  std::uint64_t last(const std::string& word, std::uint64_t otherwise) const {
    const std::size_t begin = text_.rfind(word + " ");
    return begin == std::string::npos ? otherwise : std::stoull(text_.substr(begin + word.size() + 1));
  }
  /// Returns the last version known to be committed.
  std::uint64_t committed() const { return last("saved", last("ready", 0)); }

 private:
  bool read_some() {
    char buffer[4096];
    const ssize_t count = read(output_.get(), buffer, sizeof buffer);
    if (count > 0) text_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }
  pid_t child_ = -1;
  Descriptor output_;
  std::string text_;
};

std::vector<std::string> fault(const std::string& root, long at, const std::string& what) {
  return {"LD_PRELOAD=" TRIREME_IO_FAULT_SHIM, "ASAN_OPTIONS=verify_asan_link_order=0", "TRIREME_FAULT_FOLDER=" + root,
          "TRIREME_FAULT_AT=" + std::to_string(at), "TRIREME_FAULT=" + what};
}

class CheckpointFaults : public testing::Test {
 protected:
  std::uint64_t load() {
    CheckpointStore store(root);
    return test::load_version(store, world);
  }
  /// Runs the driver for this many saves and expects success.
  void save(int saves) {
    Driver driver(root, saves);
    ASSERT_EQ(driver.finish(), 0) << driver.text();
  }
  /// Expects a successful save to remove all traces of faults.
  void expect_clean_after_save() {
    save(1);
    EXPECT_THAT(names_in(root), Not(Contains(StartsWith("."))));
  }
  /// Returns the stride of calls at which a fault is tried: TRIREME_FAULT_STRIDE, by default large enough for daily
  /// runs.
  static long stride() {
    const char* setting = std::getenv("TRIREME_FAULT_STRIDE");
    return setting == nullptr ? 13 : std::atol(setting);
  }
  /// Returns the number of calls that change files in the scenario: two saves, which replace, add and remove steps.
  long calls_in_scenario() {
    prepare();
    Driver driver(root, scenario_saves, fault(root, 0, "0"));
    EXPECT_EQ(driver.finish(), 0) << driver.text();
    return static_cast<long>(driver.last("calls", 0));
  }
  void prepare() {
    std::filesystem::remove_all(root);
    std::filesystem::copy(start, root, std::filesystem::copy_options::recursive);
  }
  void SetUp() override {
    Driver driver(start, 4);
    ASSERT_EQ(driver.finish(), 0) << driver.text();
  }

  static constexpr int scenario_saves = 2;
  test::TemporaryDirectory directory;
  std::string start = directory / "start";  // steps 2 and 3, in versions 3 and 4
  std::string root = directory / "root";
  SelfCommunicator world;
};

TEST_F(CheckpointFaults, KilledAtAnyCallTheLastCommittedStepIsLoaded) {
  const long calls = calls_in_scenario();
  ASSERT_GT(calls, 100);
  std::size_t in_flight = 0;
  for (long at = 1; at <= calls; at += stride()) {
    prepare();
    Driver driver(root, scenario_saves, fault(root, at, "kill"));
    ASSERT_EQ(driver.finish(), -SIGKILL) << driver.text();
    const std::uint64_t loaded = load();
    ASSERT_TRUE(loaded == driver.committed() || loaded == driver.committed() + 1)
        << "killed at call " << at << " after version " << driver.committed() << ", version " << loaded << " is loaded";
    in_flight += loaded != driver.committed();
    if (at % 4 == 1) expect_clean_after_save();
  }
  std::printf("%ld kills, %zu of them after the new step had its name\n", (calls + stride() - 1) / stride(), in_flight);
}

TEST_F(CheckpointFaults, AFailureOfAnyCallLosesNothingAndIsExplained) {
  const long calls = calls_in_scenario();
  for (long at = 1; at <= calls; at += stride()) {
    const int error = at % 2 == 0 ? ENOSPC : EIO;
    prepare();
    Driver driver(root, scenario_saves, fault(root, at, std::to_string(error)));
    const int exit_code = driver.finish();
    const std::uint64_t loaded = load();
    if (exit_code == 0) {  // a call whose failure does no harm
      ASSERT_EQ(loaded, 4u + scenario_saves) << driver.text();
    } else {
      ASSERT_EQ(exit_code, 5) << driver.text();
      ASSERT_TRUE(loaded == driver.committed() || loaded == driver.committed() + 1) << "call " << at;
      EXPECT_THAT(driver.text(), HasSubstr(std::strerror(error))) << "call " << at;
      EXPECT_THAT(driver.text(), HasSubstr(root)) << "call " << at;
    }
    if (at % 4 == 1) expect_clean_after_save();
  }
}

TEST_F(CheckpointFaults, StepThatCannotBeReadIsReadAgainOrAnErrorButNoOlderOneIsLoaded) {
  prepare();
  const auto load_with = [&](long at, int error, int times) {
    std::vector<std::string> environment = fault(root, at, std::to_string(error));
    environment.push_back("TRIREME_FAULT_READS=1");
    environment.push_back("TRIREME_FAULT_TIMES=" + std::to_string(times));
    return std::make_unique<Driver>(root, 0, environment);
  };
  const auto counting = load_with(0, 0, 1);
  ASSERT_EQ(counting->finish(), 0) << counting->text();
  const auto calls = static_cast<long>(counting->last("calls", 0));
  ASSERT_GT(calls, 20);
  constexpr int always = 1000000;
  int refused = 0;
  const auto expect_newest_or_refused = [&](long at, int error, int times) {
    const auto driver = load_with(at, error, times);
    if (driver->finish() == 0) {
      EXPECT_EQ(driver->last("ready", 0), 4u) << std::strerror(error) << " at call " << at;
      return;
    }
    EXPECT_THAT(driver->text(), testing::AllOf(HasSubstr("exit 5"), HasSubstr(std::strerror(error)), HasSubstr(root)))
        << "call " << at;
    ++refused;
  };
  const long step = std::max(1L, stride() / 3);
  for (long at = 1; at <= calls; at += step) expect_newest_or_refused(at, EACCES, 1);  // lasting at once
  EXPECT_GT(refused, calls / step / 2);
  refused = 0;
  const int transient[] = {EIO, ESTALE, EINTR, ETIMEDOUT};
  for (long at = 1; at <= calls; at += step) expect_newest_or_refused(at, transient[at / step % 4], 1);
  EXPECT_EQ(refused, 0) << "transient errors are waited for";
  expect_newest_or_refused(calls / 2, EIO, always);
  EXPECT_EQ(refused, 1) << "but not indefinitely";
  std::printf("%ld calls that read\n", calls);
}

TEST_F(CheckpointFaults, ProcessWhoseSaveFailedSavesAgain) {
  const long calls = calls_in_scenario();
  for (long at = 3; at <= calls; at += 2 * stride()) {
    prepare();
    Driver driver(root, scenario_saves, fault(root, at, std::to_string(ENOSPC)), "again");
    ASSERT_EQ(driver.finish(), 0) << "call " << at << "\n" << driver.text();
    ASSERT_EQ(load(), 4u + scenario_saves) << "call " << at;
    EXPECT_THAT(names_in(root), Not(Contains(StartsWith(".tmp")))) << "call " << at;
  }
}

TEST_F(CheckpointFaults, ShortWritesAreCompleted) {
  const long calls = calls_in_scenario();
  for (long at = 1; at <= calls; at += 3 * stride()) {
    prepare();
    Driver driver(root, scenario_saves, fault(root, at, "short"));
    ASSERT_EQ(driver.finish(), 0) << driver.text();
    ASSERT_EQ(load(), 4u + scenario_saves);
  }
}

// TRIREME_KILL_ROUNDS sets the number of kills.
TEST_F(CheckpointFaults, KilledAtAnyTimeTheLastCommittedStepIsLoaded) {
  const char* setting = std::getenv("TRIREME_KILL_ROUNDS");
  const int rounds = setting == nullptr ? 10 : std::atoi(setting);
  prepare();
  test::Random random(static_cast<std::uint64_t>(getpid()));
  std::uint64_t committed = 4;
  int in_flight = 0;
  for (int round = 0; round < rounds; ++round) {
    Driver driver(root, 1000000);
    driver.wait_until_ready();
    ASSERT_THAT(driver.text(), testing::StartsWith(fmt::format("ready {}\n", committed)));  // it may have gone on
    std::this_thread::sleep_for(std::chrono::microseconds(test::random_below(random, 40000)));
    driver.kill_now();
    committed = load();
    ASSERT_TRUE(committed == driver.committed() || committed == driver.committed() + 1)
        << "after version " << driver.committed() << ", version " << committed << " is loaded";
    in_flight += committed != driver.committed();
  }
  std::printf("%d kills, %d of them after the new step had its name, %lu versions saved\n", rounds, in_flight,
              committed - 4);
  expect_clean_after_save();
}

TEST_F(CheckpointFaults, FullDiskIsAnErrorAndTheOldStepIsIntact) {
  const std::string disk = directory / "disk";
  std::filesystem::create_directory(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "a small file system cannot be mounted here: " << std::strerror(errno);
  }
  {
    CheckpointStore store(disk);
    test::save_version(store, world, 1, 1);
    std::vector<float> big(std::size_t{600} << 10);
    const TensorView view(big.data(), {600 << 10});  // the disk has room for one
    const checkpoint::ShardDataset datasets[] = {{"tensor/big/0", view}, {"tensor/big/1", view}};
    const std::string staging = store.begin(2, 0, "");
    EXPECT_THAT([&] { store.write_shard(staging, "rank-00000.h5", datasets); },
                testing::ThrowsMessage<IoError>(testing::AllOf(HasSubstr("No space left"), HasSubstr("are free"))));
    const std::int64_t full = free_bytes(disk);
    store.abandon(staging);
    EXPECT_GT(free_bytes(disk), full + (1 << 20)) << "no open file holds the room";
    EXPECT_EQ(test::load_version(store, world, "step-00000001"), 1u);
    EXPECT_THAT(names_in(disk), testing::ElementsAre(".lock", "LATEST", "step-00000001"));
  }
  // A folder in memory has no more room than the machine has memory.
  ASSERT_EQ(mount("none", disk.c_str(), "tmpfs", MS_REMOUNT, "size=1p"), 0);
  EXPECT_LE(free_bytes(disk), static_cast<std::int64_t>(machine_memory_bytes()));
  umount(disk.c_str());
}

}  // namespace
}  // namespace trireme::io
