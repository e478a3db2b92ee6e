// Makes local copies of a data set whose files are on a file system shared by many hosts.
#pragma once

#include <string>

namespace io {

// Returns the location of a file or folder in `stage`: STAGE/NAME-HASH, with the hash of its
// absolute path; a file is placed in a folder of that name. The same on every rank.
std::string staged_path(const std::string& source, const std::string& stage);

// Makes the contents of staged_path(source, stage) equal to `source`: copies each file that is
// missing or differs in size or modification time, under a temporary name until it is complete, and
// removes files that are not in the source. Hidden files are not copied; links are followed
// (data_folder.h). Only one process per host may call it at a time. The folder is made with mode
// 0700; one that is there must belong to this user or to root, and not be a link or writable by
// other users. Throws MissingFileError (the source cannot be read), DataError (it contains a broken
// link) and CannotCreateError (the folder is another one, or a copy cannot be written; with the
// bytes needed and free if the disk is full).
void stage_files(const std::string& source, const std::string& stage);

}  // namespace io
