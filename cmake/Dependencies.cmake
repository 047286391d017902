# Debian packages only; scripts/install-packages lists them. The libraries' users need them too, to link: Install.cmake writes
# both lists into the package's configuration.
set(TENON_PACKAGES Threads fmt spdlog yaml-cpp nlohmann_json simdjson PkgConfig)
set(TENON_PKGCONFIG_MODULES libpcre2-8 libutf8proc)  # as PkgConfig::<name without lib>

foreach(package IN LISTS TENON_PACKAGES)
  find_package(${package} REQUIRED)
endforeach()
foreach(module IN LISTS TENON_PKGCONFIG_MODULES)
  string(REPLACE "lib" "" name ${module})
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
endforeach()
