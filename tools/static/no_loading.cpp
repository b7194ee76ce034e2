// A program with the C library within must not load libraries: they would bring a second C library, maybe of another
// version. hwloc looks for plugins, OpenMP's runtime for GPUs; both go on without. Also what hwloc's archive wants of
// udev, of which there is none: it asks it about disks and network cards, which nobody here wants to know.
#include <dlfcn.h>

extern "C" {

void* dlopen(const char*, int) noexcept { return nullptr; }
void* dlsym(void*, const char*) noexcept { return nullptr; }
int dlclose(void*) noexcept { return 0; }
char* dlerror() noexcept {
  static char text[] = "a static program loads nothing";
  return text;
}

void* udev_new() { return nullptr; }
void* udev_unref(void*) { return nullptr; }
void* udev_device_new_from_subsystem_sysname(void*, const char*, const char*) { return nullptr; }
const char* udev_device_get_property_value(void*, const char*) { return nullptr; }
void* udev_device_unref(void*) { return nullptr; }

}  // extern "C"
