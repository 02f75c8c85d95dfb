// Opening the CUDA backend's library, and every reason for failure.
#include "src/backend/cuda_library.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "src/backend/backend.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

constexpr const char* driver_that_exists = "libc.so.6";

TEST(CudaLibrary, OpensTheOneInItsFolder) {
  std::string reason;
  const CudaExports* library = open_cuda_library(GOOD_LIBRARY_FOLDER, driver_that_exists, reason);
  ASSERT_NE(library, nullptr) << reason;
  EXPECT_EQ(library->make_backend({}, &reason), nullptr);
  EXPECT_EQ(reason, "the library of the test has none");
}

TEST(CudaLibrary, RefusesAFolderWithoutOne) {
  const test::TemporaryDirectory folder;
  std::string reason;
  EXPECT_EQ(open_cuda_library(folder.path(), driver_that_exists, reason), nullptr);
  EXPECT_THAT(reason, HasSubstr("this build has no CUDA backend"));
}

TEST(CudaLibrary, RefusesAMachineWithoutDriverBeforeItLoadsAnything) {
  std::string reason;
  EXPECT_EQ(open_cuda_library(GOOD_LIBRARY_FOLDER, "libno_such_driver.so.1", reason), nullptr);
  EXPECT_THAT(reason, HasSubstr("no NVIDIA driver (libno_such_driver.so.1"));
}

TEST(CudaLibrary, RefusesAFileThatDoesNotLoad) {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "libtrireme_cuda.so") << "not a library";
  std::string reason;
  EXPECT_EQ(open_cuda_library(folder.path(), driver_that_exists, reason), nullptr);
  EXPECT_THAT(reason, HasSubstr("the CUDA backend does not load"));
}

TEST(CudaLibrary, RefusesAnotherVersion) {
  std::string reason;
  EXPECT_EQ(open_cuda_library(OLD_LIBRARY_FOLDER, driver_that_exists, reason), nullptr);
  EXPECT_THAT(reason, HasSubstr("is of another version of the program, 0.0.1"));
}

TEST(CudaLibrary, AutoFallsBackToTheCpuWithTheReason) {
  std::string reason;
  const CudaExports* library = open_cuda_library(reason);
  if (library != nullptr && library->take_inventory(0).device >= 0) GTEST_SKIP() << "this machine has a GPU";
  std::string why;
  const auto backend = make_backend(BackendChoice::automatic, 1, &why);
  EXPECT_EQ(backend->name(), "cpu");
  EXPECT_TRUE(backend->supports(Capability::fp64_training));
  EXPECT_FALSE(backend->supports(Capability::graphs));
  EXPECT_FALSE(why.empty());
  EXPECT_THROW(make_backend(BackendChoice::cuda, 1), BackendUnavailable);
}

}  // namespace
}  // namespace trireme
