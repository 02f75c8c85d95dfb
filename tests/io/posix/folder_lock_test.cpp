#include "io/posix/folder_lock.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/error.hpp"
#include "src/base/hash.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class FolderLockTest : public testing::Test {
 protected:
  /// The content that this process would write, with one line changed.
  std::string content_with(const std::string& key, const std::string& value) {
    std::string content = FolderLock(path, "runs").content();
    const std::size_t begin = content.find(key + " ") + key.size() + 1;
    return content.replace(begin, content.find('\n', begin) - begin, value);
  }
  void write(const std::string& content) { std::ofstream(path) << content; }
  void expect_refused(const std::string& message) {
    EXPECT_THAT([&] { FolderLock lock(path, "runs"); },
                ThrowsMessage<EnvironmentError>(AllOf(HasSubstr("runs is in use by another job"), HasSubstr(message))));
  }
  void SetUp() override { setenv("TRIREME_LOCK_WAIT", "0", 1); }
  void TearDown() override {
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_RESTART_COUNT");
    unsetenv("TRIREME_RESTART");
  }

  test::TemporaryDirectory directory;
  std::string path = directory / ".lock";
};

TEST_F(FolderLockTest, ASecondOwnerIsRefusedAndTheFirstNamed) {
  {
    const FolderLock lock(path, "runs");
    expect_refused(std::to_string(getpid()));
    EXPECT_EQ(read_whole_file(path, 4096), lock.content());
  }
  EXPECT_TRUE(names_in(directory.path()).empty());
  EXPECT_NO_THROW(FolderLock lock(path, "runs"));
}

TEST_F(FolderLockTest, LockOfADeadProcessIsTakenOver) {
  for (const int flags : {WEXITED, WEXITED | WNOWAIT}) {  // the second one is a zombie
    const pid_t child = fork();
    if (child == 0) {
      new FolderLock(path, "runs");
      _exit(0);
    }
    siginfo_t ended;
    waitid(P_PID, static_cast<id_t>(child), &ended, flags);
    ASSERT_EQ(names_in(directory.path()).size(), 1u);
    EXPECT_NO_THROW(FolderLock lock(path, "runs"));
    waitpid(child, nullptr, 0);
  }
}

// Another container's processes are not visible here.
TEST_F(FolderLockTest, LockOfAnotherNamespaceOfProcessesIsNotTakenOver) {
  write(content_with("started", "1"));
  EXPECT_NO_THROW(FolderLock lock(path, "runs"));
  std::string content = content_with("started", "1");
  const std::size_t begin = content.find("pid_namespace ");
  write(content.replace(begin, content.find('\n', begin) - begin, "pid_namespace pid:[1]"));
  expect_refused("process " + std::to_string(getpid()));
  write(content.erase(begin, content.find('\n', begin) - begin + 1));  // as an earlier version
  expect_refused("process " + std::to_string(getpid()));
}

TEST_F(FolderLockTest, OwnerThatIsAboutToEndIsWaitedFor) {
  unsetenv("TRIREME_LOCK_WAIT");
  for (const bool releases : {true, false}) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto* lock = new FolderLock(path, "runs");
      const ssize_t written = ::write(ready[1], "!", 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (releases) delete lock;
      _exit(written == 1 ? 0 : 1);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();  // the log of a test
    { const FolderLock lock(path, "runs"); }
    const std::string text = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
    EXPECT_THAT(text, HasSubstr(fmt::format("runs is in use by process {} on host", child)));
    EXPECT_THAT(text, HasSubstr("waiting at most 30 s for its end"));
    waitpid(child, nullptr, 0);
  }
}

TEST_F(FolderLockTest, WaitHasABound) {
  const FolderLock lock(path, "runs");
  setenv("TRIREME_LOCK_WAIT", "0.3", 1);
  const auto begin = std::chrono::steady_clock::now();
  expect_refused(std::to_string(getpid()));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
  setenv("TRIREME_LOCK_WAIT", "soon", 1);
  EXPECT_THAT([&] { FolderLock second(path, "runs"); },
              ThrowsMessage<ConfigError>(HasSubstr("TRIREME_LOCK_WAIT=soon is not a number of seconds")));
}

TEST_F(FolderLockTest, ARecycledPidIsAnotherProcess) {
  write(content_with("started", "1"));
  EXPECT_NO_THROW(FolderLock lock(path, "runs"));
  write(content_with("boot", "0123"));
  EXPECT_NO_THROW(FolderLock lock(path, "runs"));
}

TEST_F(FolderLockTest, TakesOverFromAnEarlierAttemptOfThisJob) {
  setenv("SLURM_JOB_ID", "77", 1);
  std::string content = content_with("host", "elsewhere");
  write(content);
  expect_refused("SLURM job 77");  // the same attempt: another step of the job
  for (const char* count : {"SLURM_RESTART_COUNT", "TRIREME_RESTART"}) {
    write(content);
    setenv(count, "1", 1);
    EXPECT_NO_THROW(FolderLock lock(path, "runs")) << count;
    unsetenv(count);
  }
}

TEST_F(FolderLockTest, OneOfManyContendersGetsTheLock) {
  for (int round = 0; round < 200; ++round) {
    write(content_with("started", "1"));  // and it has to be taken over first
    std::atomic<int> acquired = 0, failed = 0;
    std::vector<std::unique_ptr<FolderLock>> locks(8);
    std::vector<std::thread> threads;
    for (auto& lock : locks) {
      threads.emplace_back([&] {
        try {
          lock = std::make_unique<FolderLock>(path, "runs");
          ++acquired;
        } catch (const EnvironmentError&) {
        } catch (const std::exception&) {
          ++failed;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(acquired, 1);
    ASSERT_EQ(failed, 0);
    ASSERT_EQ(names_in(directory.path()).size(), 1u);
  }
}

TEST_F(FolderLockTest, TakesOverFromASuccessorThatDied) {
  const std::string dead = content_with("started", "1"), other = content_with("started", "2");
  write(dead);
  const std::string successor = fmt::format("{}-{:016x}", path, fnv1a(dead));
  std::ofstream(successor) << other;
  const FolderLock lock(path, "runs");
  EXPECT_EQ(read_whole_file(path, 4096), lock.content());
  EXPECT_EQ(names_in(directory.path()).size(), 1u);
}

TEST_F(FolderLockTest, ALiveSuccessorIsTheOwner) {
  const FolderLock living(directory / "elsewhere", "runs");
  const std::string dead = content_with("started", "1");
  write(dead);
  std::ofstream(fmt::format("{}-{:016x}", path, fnv1a(dead))) << living.content();
  expect_refused(std::to_string(getpid()));
}

TEST_F(FolderLockTest, AnEmptyFileIsNamed) {
  write("");
  EXPECT_THAT([&] { FolderLock lock(path, "runs"); },
              ThrowsMessage<EnvironmentError>(HasSubstr("if no job uses runs, delete it")));
  unlink(path.c_str());
}

TEST_F(FolderLockTest, AMalformedFileDoesNotProveThatTheOwnerEnded) {
  write("rubbish");
  expect_refused(path);
  unlink(path.c_str());
}

}  // namespace
}  // namespace trireme::io
