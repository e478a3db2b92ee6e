// An MPI library with a world of one rank, compiled once for each ABI. Its functions fail if they
// do not get that ABI's handles and constants, which are written here as in the headers of MPICH,
// Open MPI and MPI 5.0.
//
// FAKE_MPI: 1 MPICH, 2 Open MPI, 3 the standard ABI, 4 handles of an unknown ABI.
#include <cstring>

#if FAKE_MPI == 1
#define FAKE_TEXT "MPICH Version:\t4.9.1\nMPICH Release date:\tThu Apr  7 2022\n"
using Handle = int;
const Handle kWorld = 0x44000000, kByte = 0x4c00010d, kErrorsReturn = 0x54000001;
const int kAnySource = -2, kAnyTag = -1, kSerialized = 2;
#elif FAKE_MPI == 2
#define FAKE_TEXT "Open MPI v4.9.1, package: fake, ident: 4.9.1"
using Handle = void*;
// Protected, as a real Open MPI may also be loaded.
extern "C" {
[[gnu::visibility("protected")]] char ompi_mpi_comm_world[512], ompi_mpi_byte[512],
    ompi_mpi_errors_return[512];
}
const Handle kWorld = ompi_mpi_comm_world, kByte = ompi_mpi_byte;
const Handle kErrorsReturn = ompi_mpi_errors_return;
const int kAnySource = -1, kAnyTag = -1, kSerialized = 2;
#else
#if FAKE_MPI == 3
#define FAKE_TEXT "Some MPI 9.1"
#else
#define FAKE_TEXT "Other MPI 2.25  08/01/20\n"
#endif
using Handle = void*;
const Handle kWorld = reinterpret_cast<Handle>(0x101), kByte = reinterpret_cast<Handle>(0x247);
const Handle kErrorsReturn = reinterpret_cast<Handle>(0x143);
const int kAnySource = -1, kAnyTag = -2, kSerialized = 2048;
#endif

namespace {

// Addresses or numbers of what this library makes; no other value is valid.
Handle made(int which) {
#if FAKE_MPI == 1
  return 0x04000100 + which;
#else
  static char places[8];
  return places + which;
#endif
}
enum { kGroupOfAll, kGroup, kComm, kRequest };

int verdict(bool is_right) { return is_right ? 0 : 13; }
bool given_wrong = false;  // set by a begun call that got something wrong

int begin(bool is_right, const void* from, void* to, int bytes, Handle* request) {
  if (!is_right) return 13;
  *request = made(kRequest);
  if (from != to) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  return 0;
}

int gather(const void* from, int count, Handle type, void* to, int count_of_each,
           Handle type_of_each, Handle comm, Handle* request) {
  return begin(
      type == kByte && type_of_each == kByte && comm == made(kComm) && count == count_of_each, from,
      to, count, request);
}

}  // namespace

extern "C" {

int MPI_Get_library_version(char* text, int* length) {
  *length = static_cast<int>(sizeof FAKE_TEXT - 1);
  std::memcpy(text, FAKE_TEXT, sizeof FAKE_TEXT);
  return 0;
}
#if FAKE_MPI != 2
// As in MPICH 5, whose other library has the standard ABI.
int MPI_Abi_get_version(int* major, int* minor) {
  *major = FAKE_MPI == 3 ? 1 : -1;
  *minor = FAKE_MPI == 3 ? 0 : -1;
  return 0;
}
#endif
int MPI_Initialized(int* flag) {
  *flag = 0;
  return 0;
}
int MPI_Init_thread(int*, char***, int required, int* provided) {
  *provided = required == kSerialized ? kSerialized : 0;
  return 0;
}
int MPI_Query_thread(int* provided) {
  *provided = kSerialized;
  return 0;
}
int MPI_Finalized(int* flag) {
  *flag = 0;
  return 0;
}
int MPI_Finalize() { return 0; }
int MPI_Error_string(int code, char* text, int* length) {
  constexpr char kText[] = "a wrong handle";
  *length = static_cast<int>(sizeof kText - 1);
  std::memcpy(text, kText, sizeof kText);
  return code == 13 ? 0 : 13;
}
int MPI_Comm_rank(Handle comm, int* rank) {
  *rank = 0;
  return verdict(comm == kWorld);
}
int MPI_Comm_size(Handle comm, int* size) {
  *size = 1;
  return verdict(comm == kWorld);
}
int MPI_Comm_group(Handle comm, Handle* group) {
  *group = made(kGroupOfAll);
  return verdict(comm == kWorld);
}
int MPI_Group_incl(Handle group, int count, const int* ranks, Handle* made_of) {
  *made_of = made(kGroup);
  return verdict(group == made(kGroupOfAll) && count == 1 && ranks[0] == 0);
}
int MPI_Group_free(Handle*) { return 0; }
int MPI_Comm_create_group(Handle comm, Handle group, int tag, Handle* made_of) {
  *made_of = made(kComm);
  return verdict(comm == kWorld && group == made(kGroup) && tag == 7);
}
int MPI_Comm_set_errhandler(Handle comm, Handle handler) {
  return verdict((comm == kWorld || comm == made(kComm)) && handler == kErrorsReturn);
}
int MPI_Comm_free(Handle*) { return 0; }
int MPI_Iallgather(const void* from, int count, Handle type, void* to, int count_of_each,
                   Handle type_of_each, Handle comm, Handle* request) {
  return gather(from, count, type, to, count_of_each, type_of_each, comm, request);
}
int MPI_Iallgatherv(const void* from, int count, Handle type, void* to, const int* counts,
                    const int* offsets, Handle type_of_each, Handle comm, Handle* request) {
  return gather(from, count, type, static_cast<char*>(to) + *offsets, *counts, type_of_each, comm,
                request);
}
int MPI_Ialltoall(const void* from, int count, Handle type, void* to, int count_of_each,
                  Handle type_of_each, Handle comm, Handle* request) {
  return gather(from, count, type, to, count_of_each, type_of_each, comm, request);
}
int MPI_Ialltoallv(const void* from, const int* counts, const int* offsets, Handle type, void* to,
                   const int* counts_of_each, const int* offsets_of_each, Handle type_of_each,
                   Handle comm, Handle* request) {
  return gather(static_cast<const char*>(from) + *offsets, *counts, type,
                static_cast<char*>(to) + *offsets_of_each, *counts_of_each, type_of_each, comm,
                request);
}
int MPI_Ibcast(void* data, int count, Handle type, int root, Handle comm, Handle* request) {
  return begin(type == kByte && root == 0 && comm == made(kComm), data, data, count, request);
}
int MPI_Test(Handle* request, int* done, void* status) {
  std::memset(status, 0x5a, 32);  // the largest status, that of the standard ABI
  *done = *request == made(kRequest) && !given_wrong ? 1 : 0;
  return verdict(*done == 1);
}
int MPI_Iprobe(int source, int tag, Handle comm, int* found, void*) {
  *found = 0;
  given_wrong = source != kAnySource || tag != kAnyTag || comm != made(kComm);
  return 0;
}

}  // extern "C"
