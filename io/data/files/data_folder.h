// Decides which files of a folder are data: one rule for the readers of all data sets.
//
// Hidden entries (".x", and "__MACOSX", where macOS archives keep them) are skipped. Symbolic links
// are followed; one that leads nowhere, or back to a folder that it lies in, is an error, so that
// no sample is missing without a word. Two files that are copies of each other by their names
// ("a.txt" beside "a.txt.gz" or "a (1).txt") are an error that names both: read twice, samples
// would be for training and for testing. Other files are left out, and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace io {

struct FolderEntry {
  enum class Kind : std::uint8_t { kFile, kFolder, kOther, kMissing };  // kOther: a device, a pipe
  std::string path, name;
  Kind kind = Kind::kFile;  // of a link's target; kMissing: the link leads nowhere
  std::string fault{};      // kMissing: the link and what is wrong with it
};

// All entries that are not hidden, in byte order of their names. Throws MissingFileError where
// there is no such folder (with the nearest name beside it) and Error when it cannot be listed.
std::vector<FolderEntry> list_folder(const std::string& folder);

// Throws DataError for an entry of kMissing or kOther; `expected` names what is wanted instead.
void check_usable(const FolderEntry& entry, const std::string& expected);

// Files that a reader did not take, by the ending of their names.
class LeftOut {
 public:
  void add(const FolderEntry& entry);
  // A line for the user, "" if there are none: "data/a: left out 12 *.webp and 1 folder; TAKEN".
  std::string line(const std::string& folder, const std::string& taken) const;

 private:
  std::map<std::string, std::int64_t> counts_;  // "*.webp", "folder", "file without an ending"
};

using IsWanted = std::function<bool(const std::string& name)>;

// Paths of the files of `folder` itself whose names are wanted, in byte order. Throws as
// list_folder() and DataError: two that are copies by their names, a link to nothing, a device.
std::vector<std::string> pick_files(const std::string& folder, const IsWanted& wanted,
                                    LeftOut& left_out);

// The same of `folder` and all folders below it, through links, in byte order of the paths. Copies
// are refused only if their bytes are equal: a camera or a browser numbers pictures like this.
std::vector<std::string> pick_files_below(const std::string& folder, const IsWanted& wanted,
                                          LeftOut& left_out);

// All files of `folder` and below that are not hidden, through links, in byte order of the paths.
// Throws as list_folder(), and DataError for a link to nothing or round in a circle.
std::vector<std::string> all_files_below(const std::string& folder);

// The name that a copy has been made of ("a.txt" for "a.txt.gz", "a (1).txt" and "a - Copy.txt");
// the name itself for every other.
std::string original_name(std::string_view name);

}  // namespace io
