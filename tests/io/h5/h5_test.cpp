#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "io/h5/file.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using h5::File;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::int64_t> counting(std::int64_t count) {
  std::vector<std::int64_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

void expect_refused(const std::string& path, const std::string& reason) {
  EXPECT_THAT([&] { File::open(path, Symlinks::follow).dataset("/x"); }, ThrowsMessage<DataError>(HasSubstr(reason)));
}

// A file made with the bare library, for what File::create would never write.
class ForeignFile {
 public:
  explicit ForeignFile(const std::string& path)
      : handle_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~ForeignFile() { H5Fclose(handle_); }
  hid_t get() const { return handle_; }
  void add_dataset(hid_t type, std::vector<hsize_t> extents, hid_t creation = H5P_DEFAULT) const {
    const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
    const hid_t dataset = H5Dcreate2(handle_, "x", type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    ASSERT_GE(dataset, 0);
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, 8);
    const hid_t scalar = H5Screate(H5S_SCALAR);
    const hid_t attribute = H5Acreate2(dataset, "dtype", text, scalar, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, text, "fp32\0\0\0");
    H5Aclose(attribute);
    H5Sclose(scalar);
    H5Tclose(text);
    H5Dclose(dataset);
    H5Sclose(space);
  }

 private:
  hid_t handle_;
};

class H5File : public ::testing::Test {
 protected:
  test::TemporaryDirectory directory_;
  std::string path_ = directory_ / "file.h5";
};

TEST_F(H5File, ReadsBackEveryTypeBitwise) {
  std::vector<std::uint8_t> bytes(8 * 6);
  std::iota(bytes.begin(), bytes.end(), 200);
  const Shape shape{2, 3};
  File file = File::create(path_);
  for (int i = 0; i <= static_cast<int>(DType::uint8); ++i) {
    const DType dtype = static_cast<DType>(i);
    file.create_dataset(fmt::format("/group/{}", name_of(dtype)), dtype, shape)
        .write(ConstTensorView(reinterpret_cast<const std::byte*>(bytes.data()), dtype, shape));
  }
  file.close();

  const File read = File::open(path_, Symlinks::follow);
  EXPECT_EQ(read.dataset_paths().size(), 9u);
  for (const std::string& name : read.dataset_paths()) {
    const h5::Dataset dataset = read.dataset(name);
    EXPECT_EQ(name, fmt::format("/group/{}", name_of(dataset.dtype())));
    EXPECT_EQ(dataset.shape(), shape);
    std::vector<std::uint8_t> back(8 * 6);
    const std::size_t size_bytes = 6 * size_of(dataset.dtype());
    dataset.read(TensorView(reinterpret_cast<std::byte*>(back.data()), dataset.dtype(), shape));
    EXPECT_TRUE(std::equal(back.begin(), back.begin() + static_cast<std::ptrdiff_t>(size_bytes), bytes.begin()));
  }
}

TEST_F(H5File, WritesRows) {
  File file = File::create(path_);
  h5::Dataset dataset = file.create_dataset("/x", DType::int64, {4, 2, 3});
  const std::vector<std::int64_t> values = counting(24);
  dataset.write_rows(3, ConstTensorView(values.data() + 18, {6}));
  dataset.write_rows(0, ConstTensorView(values.data(), {3, 2, 3}));
  dataset.write_rows(4, ConstTensorView(values.data(), {0}));
  for (const auto& [begin, elements] : {std::pair{-1, 6}, {4, 6}, {0, 5}, {0, 30}}) {
    EXPECT_THROW(dataset.write_rows(begin, ConstTensorView(values.data(), {elements})), ShapeError);
  }
  file.close();
  std::vector<std::int64_t> back(24);
  File::open(path_, Symlinks::follow).dataset("/x").read(TensorView(back.data(), {4, 2, 3}));
  EXPECT_EQ(back, values);
}

TEST_F(H5File, KeepsScalarsEmptyArraysAndAttributes) {
  File file = File::create(path_);
  const float pi = 3.14159f;
  file.create_dataset("/scalar", DType::fp32, {}).write(ConstTensorView(&pi, Shape{}));
  const h5::Dataset empty = file.create_dataset("/empty", DType::uint16, {0});
  EXPECT_EQ(empty.file_offset(), -1);
  h5::Object root = file.root();
  root.write_attribute("name", "größe");
  root.write_attribute("nothing", "");
  root.write_attribute("count", std::int64_t{1} << 62);
  root.write_attribute("long", std::string(60000, 'x'));
  EXPECT_THROW(root.write_attribute("too_long", std::string(70000, 'x')), Hdf5Error);
  file.close();
  File read = File::open(path_, Symlinks::follow);
  float value = 0;
  read.dataset("/scalar").read(TensorView(&value, Shape{}));
  EXPECT_EQ(value, pi);
  EXPECT_EQ(read.dataset("/empty").numel(), 0);
  const h5::Object read_root = read.root();
  EXPECT_EQ(read_root.text_attribute("name"), "größe");
  EXPECT_EQ(read_root.text_attribute("nothing"), "");
  EXPECT_EQ(read_root.text_attribute("long").size(), 60000u);
  EXPECT_EQ(read_root.integer_attribute("count"), std::int64_t{1} << 62);
  EXPECT_THAT([&] { read_root.integer_attribute("name"); }, ThrowsMessage<DataError>(HasSubstr("'name'")));
  EXPECT_THAT([&] { read_root.text_attribute("absent"); }, ThrowsMessage<DataError>(HasSubstr("'absent'")));
  EXPECT_FALSE(read.has("/group/deep"));
  EXPECT_THROW(read.dataset("/absent"), DataError);
}

TEST_F(H5File, IsRefusedIfItIsNotARegularHdf5File) {
  EXPECT_THROW(File::open(directory_ / "absent.h5", Symlinks::follow), IoError);
  expect_refused(directory_.path(), "not a regular file");
  ASSERT_EQ(mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  expect_refused(directory_ / "fifo", "not a regular file");
  expect_refused("/dev/zero", "not a regular file");
  std::ofstream(path_) << "some text, no HDF5";
  expect_refused(path_, "not an HDF5 file");
  std::filesystem::create_symlink(path_, directory_ / "link.h5");
  EXPECT_THAT([&] { File::open(directory_ / "link.h5", Symlinks::refuse); },
              ThrowsMessage<DataError>(HasSubstr("is a symbolic link")));
}

TEST_F(H5File, IsRefusedIfItHoldsObjectsThatAreNeverWritten) {
  const auto expect = [&](const std::string& reason, const std::function<void(const ForeignFile&)>& fill) {
    {
      const ForeignFile file(path_);
      fill(file);
    }
    expect_refused(path_, reason);
  };
  expect("link",
         [](const ForeignFile& file) { H5Lcreate_soft("/somewhere", file.get(), "x", H5P_DEFAULT, H5P_DEFAULT); });
  expect("link", [](const ForeignFile& file) {
    H5Lcreate_external("/etc/passwd", "/x", file.get(), "x", H5P_DEFAULT, H5P_DEFAULT);
  });
  expect("nested", [](const ForeignFile& file) {
    std::string path = "a";
    for (int depth = 0; depth <= 40; ++depth, path += "/a") {
      H5Gclose(H5Gcreate2(file.get(), path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    }
  });
  expect("big-endian", [](const ForeignFile& file) { file.add_dataset(H5T_IEEE_F32BE, {4}); });
  expect("'fp32'", [](const ForeignFile& file) { file.add_dataset(H5T_IEEE_F64LE, {4}); });
  expect("6 dimensions", [](const ForeignFile& file) { file.add_dataset(H5T_IEEE_F32LE, {1, 1, 1, 1, 1, 1}); });
  const hid_t chunked = H5Pcreate(H5P_DATASET_CREATE), external = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t chunk = 4;
  H5Pset_chunk(chunked, 1, &chunk);
  H5Pset_external(external, "/etc/passwd", 0, 16);
  expect("contiguous", [&](const ForeignFile& file) { file.add_dataset(H5T_IEEE_F32LE, {4}, chunked); });
  expect("inside the file", [&](const ForeignFile& file) { file.add_dataset(H5T_IEEE_F32LE, {4}, external); });
  H5Pclose(chunked);
  H5Pclose(external);
}

TEST_F(H5File, AFullDiskIsReportedWithTheReasonOfTheSystem) {
  EXPECT_THAT([] { File::create("/dev/full"); },
              ThrowsMessage<Hdf5Error>("cannot create /dev/full: No space left on device"));
}

// In a separate process: the library's own handler at exit crashes after a close that failed.
TEST_F(H5File, ProcessExitsNormallyAfterAFailedClose) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto fail_and_leave = [&] {
    std::optional<test::FileSizeLimit> limit;  // outlives the file
    try {
      File file = File::create(path_);
      h5::Dataset dataset = file.create_dataset("/x", DType::int64, {1 << 16});
      limit.emplace(0);
      file.close();
    } catch (const EnvironmentError&) {
      std::exit(42);
    }
  };
  EXPECT_EXIT(fail_and_leave(), ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace trireme::io
