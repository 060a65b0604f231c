# Two images: `--target operator` (no Java) and `--target spark` (drivers and executors). Neither runs as root.
#
#   docker build --target operator --tag exactlyonce-operator .
#   docker build --target spark --tag exactlyonce-spark .
#
# What changes often comes last: a change of the code makes a last layer of a few hundred kilobytes. Python packages and jars
# are pinned by hash (requirements/, jars.lock). BASE is any Debian whose Python is 3.11 or newer; JRE is a package of its Java, 17 or newer.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS python
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* \
    && groupadd --gid 65532 exactlyonce \
    && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin exactlyonce
ENV PYTHONPATH=/opt/exactlyonce:/opt/packages \
    PYTHONUNBUFFERED=1 \
    LANG=C.UTF-8

FROM python AS installer
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-pip python3-setuptools python3-wheel
ENV PYTHONPATH= \
    PIP_ROOT_USER_ACTION=ignore \
    PIP_DISABLE_PIP_VERSION_CHECK=1

FROM installer AS operator-packages
COPY requirements/operator.txt /tmp/
RUN pip install --no-build-isolation --require-hashes --target /opt/packages --requirement /tmp/operator.txt \
    && rm -rf /opt/packages/kubernetes/aio  # the client's asynchronous twin, as large as itself; not used here

FROM python AS operator
COPY --from=operator-packages /opt/packages /opt/packages
COPY operator/exactlyonce /opt/exactlyonce/exactlyonce
RUN python3 -m compileall -q /opt/exactlyonce
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "--", "python3", "-m", "exactlyonce.cli.main"]

FROM installer AS spark-packages
COPY requirements/driver.txt /tmp/
RUN pip install --no-build-isolation --require-hashes --target /opt/packages --requirement /tmp/driver.txt

FROM python AS java
ARG JRE=openjdk-17-jre-headless
# Slim bases have no folder for manuals, and Java's package does not install without one.
RUN mkdir -p /usr/share/man/man1 && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ${JRE} \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/*

FROM java AS spark
COPY --from=spark-packages /opt/packages /opt/packages
# Where the jars are already, say so (EXACTLYONCE_JARS); else they come from Maven Central. Their hashes are checked then.
ARG EXACTLYONCE_JARS=
COPY spark_apps/exactlyonce_spark/jars.py spark_apps/exactlyonce_spark/jars.lock /tmp/jars/
RUN EXACTLYONCE_CACHE=/tmp/jars/cache python3 /tmp/jars/jars.py --to /opt/jars && rm -rf /tmp/jars
ENV EXACTLYONCE_JARS=/opt/jars \
    EXACTLYONCE_CLASS_ARCHIVE=/opt/classes/driver.jsa \
    SPARK_HOME=/opt/packages/pyspark
# The JVM maps the classes that a driver loads instead of reading them from 300 jars: it starts seconds sooner.
COPY spark_apps/exactlyonce_spark/__init__.py spark_apps/exactlyonce_spark/jars.py spark_apps/exactlyonce_spark/class_archive.py \
    /opt/exactlyonce/exactlyonce_spark/
RUN SPARK_LOCAL_HOSTNAME=localhost SPARK_LOCAL_IP=127.0.0.1 python3 -m exactlyonce_spark.class_archive
COPY spark_apps/entrypoint /usr/local/bin/entrypoint
COPY operator/exactlyonce /opt/exactlyonce/exactlyonce
COPY spark_apps/exactlyonce_spark /opt/exactlyonce/exactlyonce_spark
RUN python3 -m compileall -q /opt/exactlyonce
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/entrypoint"]
