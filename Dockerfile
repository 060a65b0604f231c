# Two images: `--target operator` (no Java) and `--target spark` (drivers and executors). Neither runs as root.
#
#   docker build --target operator --tag exactlyonce-operator .
#   docker build --target spark --tag exactlyonce-spark .
#
# What changes often comes last: a change of the code makes last layers of a few hundred kilobytes. Python packages and jars
# are pinned by hash (requirements/, jars.lock). BASE is any Debian whose Python is 3.11 or newer, JRE a package of its Java 17
# or newer.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS python
ENV PYTHONPATH=/opt/exactlyonce:/opt/packages \
    PYTHONUNBUFFERED=1 \
    LANG=C.UTF-8
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* \
    && groupadd --gid 65532 exactlyonce \
    && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin exactlyonce

FROM python AS operator
COPY scripts/install_packages.sh requirements/operator.txt /tmp/install/
# The Kubernetes client brings an asynchronous twin as large as itself, which nothing here imports.
RUN sh /tmp/install/install_packages.sh /tmp/install/operator.txt && rm -rf /opt/packages/kubernetes/aio
COPY operator/exactlyonce /opt/exactlyonce/exactlyonce
RUN python3 -m compileall -q /opt/exactlyonce
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "--", "python3", "-m", "exactlyonce.cli.main"]

FROM python AS spark
ARG JRE=openjdk-17-jre-headless
# Slim bases have no folder for manuals, and Java's package does not install without one.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ${JRE} \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/*
COPY scripts/install_packages.sh requirements/driver.txt spark_apps/exactlyonce_spark/compiled_archive.py /tmp/install/
RUN sh /tmp/install/install_packages.sh /tmp/install/driver.txt && python3 /tmp/install/compiled_archive.py
ENV SPARK_HOME=/opt/packages/pyspark
# Where the jars are already, say so (EXACTLYONCE_JARS); else they come from Maven Central. Their hashes are checked then.
ARG EXACTLYONCE_JARS=
COPY spark_apps/exactlyonce_spark/jars.py spark_apps/exactlyonce_spark/jars.lock /tmp/jars/
RUN EXACTLYONCE_CACHE=/tmp/jars/cache python3 /tmp/jars/jars.py --to /opt/jars && rm -rf /tmp/jars/cache
ENV EXACTLYONCE_JARS=/opt/jars \
    EXACTLYONCE_CLASS_ARCHIVE=/opt/classes/driver.jsa
COPY spark_apps/entrypoint /usr/local/bin/entrypoint
COPY operator/exactlyonce /opt/exactlyonce/exactlyonce
COPY spark_apps/exactlyonce_spark /opt/exactlyonce/exactlyonce_spark
# The JVM maps the classes that a driver loads instead of reading them from 300 jars: it starts seconds sooner. Each connector
# loads its own for that, so it comes after the code.
RUN SPARK_LOCAL_HOSTNAME=localhost SPARK_LOCAL_IP=127.0.0.1 python3 -m exactlyonce_spark.class_archive
RUN python3 -m compileall -q /opt/exactlyonce
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/entrypoint"]
