#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::io {

/// Names of what the folder holds, sorted, without "." and ".."; empty where there is no such folder. IoError where it
/// cannot be read.
std::vector<std::string> names_in(const std::string& folder);

/// Returns whether the path is a folder; a symbolic link to one is not. Throws IoError where that cannot be determined.
bool is_folder(const std::string& path);

/// Returns whether anything exists at the path. Throws IoError where that cannot be determined.
bool is_there(const std::string& path);

/// Creates the folder and those above it that are missing, and brings their names to the disk.
void make_folders(const std::string& path);

/// Deletes a folder that holds only files; those called `first` before the others. IoError where a part of it stays.
void remove_folder(const std::string& folder, std::string_view first);

/// Bytes that this user can still write on the file system of `path`.
std::int64_t free_bytes(const std::string& path);

/// Replaces the content of a file such that it has the old or the new one after a crash at any time. Leaves a file
/// called PATH.new behind in a crash. One process at a time.
void write_durably(const std::string& path, std::string_view bytes);

/// Eight hexadecimal digits that no other process comes by.
std::string unique_suffix();

}  // namespace trireme::io
